"""Loading refuses a file that would make another model."""

import zipfile

import h5py
import keras
import numpy as np
import oracles
import pytest
from marks import slow

from keras_attn.layers import FeedForward
from keras_attn.layers.lora import checksum, checksums_differ
from keras_attn.memory import StatefulSegments
from keras_attn.models import bert, gpt, transformer_xl
from keras_attn.models.model import example

V = 23
SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}
ATTENTION = "layers/stack/blocks/transformer_block/attention/vars"


def made():
    model = gpt(V, **SIZES, max_length=13)
    oracles.scramble(model)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the unpacked file of a model."""
    folder = tmp_path_factory.mktemp("file")
    made().save(folder / "model.keras")
    zipfile.ZipFile(folder / "model.keras").extractall(folder)
    return folder


def packed(folder, path, change):
    """Write a model file with changed weights."""
    weights = path / "model.weights.h5"
    weights.write_bytes((folder / "model.weights.h5").read_bytes())
    with h5py.File(weights, "a") as file:
        change(file)
    with zipfile.ZipFile(path / "changed.keras", "w") as archive:
        for name in ("metadata.json", "config.json"):
            archive.write(folder / name, name)
        archive.write(weights, "model.weights.h5")
    return path / "changed.keras"


def swap(one, other):
    def change(file):
        one_value, other_value = file[one][...], file[other][...]
        file[one][...], file[other][...] = other_value, one_value

    return change


@pytest.mark.parametrize(
    "one, other",
    [
        (f"{ATTENTION}/0", f"{ATTENTION}/2"),
        slow(f"{ATTENTION}/0", f"{ATTENTION.replace('block/', 'block_1/')}/0"),
    ],
    ids=["query and key", "two layers"],
)
def test_swapped_weights_raise_on_load(folder, tmp_path, one, other):
    path = packed(folder, tmp_path, swap(one, other))
    with pytest.raises(ValueError, match="'gpt'.* 2 of its weights differ.*query_kernel"):
        keras.saving.load_model(path)


def test_weights_in_another_order_have_another_checksum():
    weights = oracles.random(7, 5)
    orders = weights[::-1], weights[:, ::-1], np.roll(weights, 1, axis=0)
    saved = np.array([checksum(weights)] * 3, "float32")
    assert checksums_differ(saved, np.array([checksum(x) for x in orders], "float32")).all()


def test_changed_layer_code_raises_on_load(folder, monkeypatch):
    call = FeedForward.call
    monkeypatch.setattr(FeedForward, "call", lambda *args, **kwargs: 1.01 * call(*args, **kwargs))
    with pytest.raises(ValueError, match="'gpt' are of another version.*answers that differ by"):
        keras.saving.load_model(folder / "model.keras")


@pytest.mark.slow
def test_file_without_fingerprint_loads_with_skip_mismatch(folder, tmp_path):
    def change(file):
        del file["fingerprint"]

    path = packed(folder, tmp_path, change)
    with pytest.raises(ValueError, match="must hold a fingerprint of 'gpt'"):
        keras.saving.load_model(path)
    model = gpt(V, **SIZES, max_length=13)
    zipfile.ZipFile(path).extract("model.weights.h5", tmp_path)
    with pytest.warns(UserWarning, match="fingerprint"):
        model.load_weights(tmp_path / "model.weights.h5", skip_mismatch=True)
    np.testing.assert_array_equal(model.embedding.table, made().embedding.table)


@pytest.mark.parametrize("size", [0, 1000, -1000])
def test_truncated_file_raises(folder, tmp_path, size):
    content = (folder / "model.keras").read_bytes()
    (tmp_path / "part.keras").write_bytes(content[:size])
    with pytest.raises(ValueError, match="ensure the file is an accessible `.keras` zip file"):
        keras.saving.load_model(tmp_path / "part.keras")


@pytest.mark.slow
def test_weights_files_are_checked(tmp_path):
    one, other = made(), gpt(V, **SIZES, max_length=13)
    one.save_weights(tmp_path / "one.weights.h5")
    other.load_weights(tmp_path / "one.weights.h5")
    np.testing.assert_array_equal(other.embedding.table, one.embedding.table)
    four_heads = gpt(V, **{**SIZES, "num_heads": 4}, max_length=13)
    with pytest.raises(ValueError, match="could not be loaded"):
        four_heads.load_weights(tmp_path / "one.weights.h5")


@pytest.mark.slow
def test_nested_model_is_checked(tmp_path):
    """The memory of a wrapper is no part of the inner model's fingerprint."""
    model = StatefulSegments(
        transformer_xl(V, **{**SIZES, "num_layers": 1}, memory_length=3), batch_size=2
    )
    oracles.scramble(model.model)
    model(np.ones((2, 5), "int32"))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.state["memory_length"], [3, 3])


@pytest.mark.slow
def test_example_input_has_distinct_tokens():
    """Tokens differ and are below the vocabulary's size; optional inputs are absent."""
    assert example(made())["token_ids"].numpy().tolist() == [[1, 2, 3]]
    sizes = {**SIZES, "num_layers": 1}
    few = example(gpt(3, **sizes, max_length=13))
    assert few["token_ids"].numpy().tolist() == [[1, 2, 1]]
    assert list(example(bert(V, **sizes, max_length=13))) == ["token_ids"]
    memory = example(transformer_xl(V, **sizes, memory_length=3))
    assert memory["memory"].shape == (1, 1, 3, 8) and memory["memory_length"].numpy() == [1]
