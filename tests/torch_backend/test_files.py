"""Files that version 0.2.0 wrote on TensorFlow load on torch with equal outputs."""

import pathlib
import shutil

import golden_models
import keras
import numpy as np
import pytest
from each import check_each

from keras_attn import callbacks, layers

FILES = pathlib.Path(__file__).parents[1] / "golden" / "files"


@pytest.fixture
def unpack(tmp_path):
    """A function (name) -> the folder of an archive, and its arrays by name."""

    def unpack(name):
        shutil.unpack_archive(FILES / f"{name}.tar.xz", tmp_path / name, filter="data")
        with np.load(tmp_path / name / "arrays.npz") as file:
            return tmp_path / name, dict(file)

    return unpack


def part(arrays, name):
    """Return the arrays whose names begin with one, by the rest of their names."""
    return {k.removeprefix(f"{name}/"): x for k, x in arrays.items() if k.startswith(f"{name}/")}


def check_outputs(model, arrays):
    outputs = keras.tree.flatten(model(part(arrays, "input")))
    expected = keras.tree.flatten(part(arrays, "output"))
    for mine, theirs in zip(outputs, expected, strict=True):
        mine = keras.ops.convert_to_numpy(mine)
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


def test_all_models_give_the_recorded_outputs(unpack):
    def check(name):
        folder, arrays = unpack(name)
        check_outputs(keras.saving.load_model(folder / "model.keras"), arrays)

    archives = [*FILES.glob("model_*.tar.xz"), *FILES.glob("own_*.tar.xz")]
    check_each(check, sorted(path.name.removesuffix(".tar.xz") for path in archives))


def test_adapters_load_into_their_model(unpack):
    folder, arrays = unpack("lora")
    model = keras.saving.load_model(folder / "model.keras")
    layers.load_lora(model, folder / "lora.npz")
    check_outputs(model, arrays)


@pytest.mark.parametrize("name", ["gpt", "segments"])
def test_a_training_resumes_from_a_checkpoint_of_tensorflow(unpack, name):
    folder, arrays = unpack(f"checkpoint_{name}")
    model = golden_models.TRAINED[name]()
    assert callbacks.Resume(str(folder / "checkpoints")).restore(model) == (0, 3)
    state = golden_models.state_of(model)
    for mine, theirs in zip(state, part(arrays, "restored").values(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
