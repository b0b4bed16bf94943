"""Tensors of a folder are float32 numbers, read from one file or from shards."""

import json

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from keras_attn.convert.hugging_face.checkpoint import Checkpoint, unwrap
from keras_attn.convert.hugging_face.config import Config
from keras_attn.convert.hugging_face.tensor_files import SINGLE, list_tensors

VALUE = np.array([[0.1, -2.5, 1e-3], [3.0, 700.0, -0.0]], "float32")


def read(folder):
    return {name: read() for name, (_, read) in list_tensors(folder).items()}


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", ml_dtypes.bfloat16])
def test_tensors_of_each_dtype_become_float32(dtype, tmp_path):
    value = VALUE.astype(dtype)
    save_file({"a": value}, tmp_path / "model.safetensors")
    (tensor,) = read(tmp_path).values()
    assert tensor.dtype == np.float32
    np.testing.assert_array_equal(tensor, value.astype("float32"))


def test_shards_hold_the_tensors_of_their_index(tmp_path):
    index = {}
    for i, name in enumerate("abc"):
        index[name] = f"model-{i % 2}.safetensors"
    for file in set(index.values()):
        names = [name for name in index if index[name] == file]
        save_file({name: VALUE + ord(name) for name in names}, tmp_path / file)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    tensors = read(tmp_path)
    assert sorted(tensors) == list("abc")
    for name, value in tensors.items():
        np.testing.assert_array_equal(value, VALUE + ord(name))


def test_a_tensor_without_numbers_is_read(tmp_path):
    save_file({"a": np.zeros((3, 0), "float32")}, tmp_path / "model.safetensors")
    assert read(tmp_path)["a"].shape == (3, 0)


def checkpoint(folder, **tensors):
    save_file(tensors, folder / "model.safetensors")
    return Checkpoint(Config(folder, {}))


def test_each_tensor_is_taken_once(tmp_path):
    loaded = checkpoint(tmp_path, a=VALUE, b=VALUE)
    loaded.take("a", VALUE.shape)
    with pytest.raises(RuntimeError, match="'a' is taken twice"):
        loaded.take("a", VALUE.shape)
    with pytest.raises(ValueError, match="the tensor 'b', which"):
        loaded.finish()
    loaded.take("b", VALUE.shape)
    loaded.finish()


def test_buffers_are_no_leftovers(tmp_path):
    names = ["embeddings.position_ids", "layers.0.self_attn.rotary_emb.inv_freq"]
    checkpoint(tmp_path, **dict.fromkeys(names, VALUE)).finish()


def test_prefixes_and_old_names_of_norms_are_replaced(tmp_path):
    names = {"bert.norm.gamma": VALUE, "bert.norm.beta": VALUE, "cls.bias": VALUE}
    loaded = checkpoint(tmp_path, **names)
    loaded.strip("bert.")
    for name in ("norm.weight", "norm.bias", "cls.bias"):
        loaded.take(name, VALUE.shape)
    loaded.finish()


@pytest.mark.parametrize(
    "prefix, stored, expected",
    [
        ("bert.", ["module.bert.a", "module.cls.b"], ["bert.a", "cls.b"]),
        ("bert.", ["module.model.a", "module.model.b"], ["a", "b"]),
        ("bert.", ["module.a", "b"], ["module.a", "b"]),
        ("model.", ["model.a", "model.b"], ["model.a", "model.b"]),
        ("model.", ["model.model.a", "model.lm_head.b"], ["model.a", "lm_head.b"]),
        ("model.", ["_orig_mod.module.model.a"], ["model.a"]),
    ],
)
def test_beginnings_of_all_names_are_removed(prefix, stored, expected):
    assert list(unwrap(dict.fromkeys(stored), prefix)) == expected


def test_a_file_without_tensors_lacks_what_is_asked_for(tmp_path):
    loaded = checkpoint(tmp_path)
    with pytest.raises(ValueError, match="The weights lack the tensor 'table'. Received: folder="):
        loaded.take("table", VALUE.shape)
    save_file({"table": VALUE}, tmp_path / SINGLE)
    assert not Checkpoint(Config(tmp_path, {}), {}).has("table")  # no file is read in its place


def test_ignored_tensors_are_no_leftovers(tmp_path):
    save_file(dict.fromkeys(["bert.own.a", "bert.own.b", "bert.c"], VALUE), tmp_path / SINGLE)
    for ignore in (["bert.own.*"], ["own.a", "*.b"]):
        loaded = Checkpoint(Config(tmp_path, {}), ignore=ignore)
        loaded.strip("bert.")
        loaded.take("c", VALUE.shape)
        loaded.finish()


@pytest.mark.parametrize("stored, tied", [(None, True), (VALUE, True), (VALUE + 1, False)])
def test_stored_values_decide_what_is_tied(stored, tied, tmp_path):
    tensors = {"table": VALUE} if stored is None else {"table": VALUE, "head": stored}
    loaded = checkpoint(tmp_path, **tensors)
    assert loaded.drop_if_equal("head", "table") is tied
    assert loaded.has("head") is not tied
