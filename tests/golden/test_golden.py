"""Files that version 0.2.0 wrote load with equal outputs; its seeds give the same weights."""

import functools
import json
import pathlib
import shutil

import golden_models
import keras
import numpy as np
import pytest

from keras_attn import callbacks, export, layers, models, text
from keras_attn.export import golden_outputs

FILES = pathlib.Path(__file__).parent / "files"
# Representatives that the fast tests read; the slow ones read all others.
FAST = "model_gpt", "own_patterns", "checkpoint_gpt"
RUN = [f"export_{name}" for name in "compiled int4 segment_steps text_classifier".split()]
RUN += [f"export_{name}" for name in "token_stream trajectory_steps translator".split()]
FAST_BUILDERS = "bert gtrxl image_transformer mixtral transformer transformer_xl vit".split()


@pytest.fixture
def unpack(tmp_path):
    """A function (name) -> the folder of an archive, and its arrays as a dict of dicts."""

    def unpack(name):
        folder = tmp_path / name
        shutil.unpack_archive(FILES / f"{name}.tar.xz", folder, filter="data")
        arrays = {}
        with np.load(folder / "arrays.npz") as file:
            for key in file:
                kind, _, rest = key.partition("/")
                arrays.setdefault(kind, {})[rest] = file[key]
        return folder, arrays

    return unpack


def names(beginning):
    """Return the names of the slow archives with a beginning."""
    archives = sorted(path.name.removesuffix(".tar.xz") for path in FILES.glob(f"{beginning}*.xz"))
    return [name for name in archives if name not in FAST]


def assert_equal(outputs, expected, name, tolerance=1e-5):
    """Compare arrays by name: numbers to a tolerance, all others exactly."""
    assert set(outputs) == set(expected), name
    for key, value in expected.items():
        array = np.asarray(outputs[key])
        message = f"{key} of {name}"
        if value.dtype.kind == "f":
            np.testing.assert_allclose(array, value, tolerance, tolerance, err_msg=message)
        else:
            np.testing.assert_array_equal(array, value, err_msg=message)


def numbered(tree):
    """Return arrays by name: those of a dict, or by their number."""
    if isinstance(tree, dict):
        return tree
    return {str(index): x for index, x in enumerate(keras.tree.flatten(tree))}


def check_model(unpack, name):
    folder, arrays = unpack(name)
    model = keras.saving.load_model(folder / "model.keras")
    outputs = model(arrays["input"])
    assert_equal(numbered(outputs), arrays["output"], name)
    if "flags" in arrays:
        # Names that Keras counts, and `trainable` below a frozen layer, may differ.
        policies, expected = (
            sorted(policy for _, policy, _ in flags)
            for flags in (golden_models.flags_of(model), json.loads(str(arrays["flags"][""])))
        )
        assert policies == expected
    return model


def restored(folder, arrays, name):
    """Return the compiled model of a checkpoint, whose state is equal to the bit."""
    model = golden_models.TRAINED[name.removeprefix("checkpoint_")]()
    assert callbacks.Resume(str(folder / "checkpoints")).restore(model) == (0, 3)
    for state, expected in zip(
        golden_models.state_of(model), arrays["restored"].values(), strict=True
    ):
        np.testing.assert_array_equal(state, expected)
    return model


def check_training(unpack, name):
    """The losses and weights after more training are equal too."""
    folder, arrays = unpack(name)
    model = restored(folder, arrays, name)
    data = golden_models.training_data(3)
    logs = model.fit(data, verbose=0, shuffle=False).history
    assert_equal({key: x[0] for key, x in logs.items()}, first(arrays["logs"]), name)
    # Steps of 0.01; Adam divides by the size of a gradient, and so enlarges the rounding of a small
    # one, which differs between processors.
    assert_equal(numbered(golden_models.state_of(model)), arrays["trained"], name, 1e-4)


def first(logs):
    return {key: np.asarray(x[0]) for key, x in logs.items()}


def test_a_model_of_the_library_gives_the_recorded_outputs(unpack):
    check_model(unpack, FAST[0])


@pytest.mark.slow
def test_layers_in_a_model_of_ones_own_give_the_recorded_outputs(unpack):
    check_model(unpack, FAST[1])


def test_a_checkpoint_gives_the_state_of_a_training(unpack):
    restored(*unpack(FAST[2]), FAST[2])


@pytest.mark.slow
@pytest.mark.parametrize("beginning", ["model_", "own_"])
def test_all_models_give_the_recorded_outputs(unpack, beginning):
    for name in names(beginning):
        check_model(unpack, name)


@pytest.mark.slow
def test_frozen_layers_stay_frozen(unpack):
    layer = check_model(unpack, "own_flags").get_layer("frozen")
    assert not layer.trainable and not layer.trainable_weights


@pytest.mark.slow
def test_a_training_resumes_from_a_checkpoint(unpack):
    for name in (FAST[2], *names("checkpoint_")):
        check_training(unpack, name)


@pytest.mark.slow
def test_adapters_load_into_their_model(unpack):
    folder, arrays = unpack("lora")
    model = keras.saving.load_model(folder / "model.keras")
    layers.load_lora(model, folder / "lora.npz")
    assert_equal(numbered(model(arrays["input"])), arrays["output"], "lora")


@pytest.mark.slow
def test_tokenizers_give_the_recorded_ids(unpack):
    folder, arrays = unpack("tokenizers")
    for name, expected in arrays["ids"].items():
        tokenizer = text.load(str(folder / name))
        ids, lengths = tokenizer.encode(["the cat ran", "unable to go", ""])
        np.testing.assert_array_equal(ids, expected)
        np.testing.assert_array_equal(lengths, arrays["lengths"][name])
        texts = np.asarray(tokenizer.decode(ids)).astype("S")
        np.testing.assert_array_equal(texts, arrays["text"][name])


@pytest.mark.slow
def test_saved_models_are_read_and_give_what_they_record(unpack, monkeypatch):
    """To 1e-5 of an output's greatest number, not the 1e-3 that other processors may differ by.

    One of each kind of state, tokenizer, precision and compilation is run.
    """
    close = functools.partial(golden_outputs.outputs_match, tolerance=1e-5)
    monkeypatch.setattr("keras_attn.export.golden_outputs.outputs_match", close)
    # The exports that are run come first: the others are read alone.
    for name in sorted(names("export_"), key=lambda name: name not in RUN):
        if name not in RUN:
            monkeypatch.setattr("keras_attn.export.inspection.replay", lambda *_, **__: None)
        folder, arrays = unpack(name)
        inspection = export.inspect(str(folder / "export" / "1"))
        if name in RUN:
            assert inspection.outcomes == json.loads(str(arrays["outcomes"][""])), name
        assert inspection.has_own_variables and not inspection.unservable, name


@pytest.mark.slow
def test_onnx_files_give_the_recorded_outputs(unpack):
    onnxruntime = pytest.importorskip("onnxruntime")
    for name in names("onnx_"):
        folder, arrays = unpack(name)
        session = onnxruntime.InferenceSession(folder / "model.onnx")
        keys = [x.name for x in session.get_outputs()]
        outputs = dict(zip(keys, session.run(None, arrays["input"]), strict=True))
        assert_equal(outputs, arrays["output"], name)


@pytest.mark.slow
def test_ctranslate2_gives_the_recorded_outputs(unpack):
    pytest.importorskip("ctranslate2")
    for name in names("ctranslate2_"):
        folder, arrays = unpack(name)
        kind = name.removeprefix("ctranslate2_")
        outputs = golden_models.engine_outputs(kind, str(folder / "engine"))
        assert_equal(outputs, {key: x[""] for key, x in arrays.items()}, name)


def check_weights(content, make):
    """Weights are equal to the bit, or nearly so where a processor rounds normal numbers otherwise.

    Another order of the seeds, or another initializer, changes the projection beyond that.
    """
    differ = []
    for name, expected in content.items():
        digest, projection = golden_models.initial_weights(make, name)
        is_near = np.isclose(projection, expected["projection"], rtol=0, atol=1e-5)
        if digest != expected["sha256"] and not is_near:
            differ.append(name)
    assert not differ


@pytest.fixture(scope="module")
def recorded():
    """The digests of initial weights of builders and presets."""
    with open(FILES / "weights.json", encoding="utf-8") as file:
        content = json.load(file)
    if content["keras"].split(".")[:2] != keras.__version__.split(".")[:2]:
        pytest.skip(f"the weights are those of Keras {content['keras']}")
    return content


def test_seeds_give_the_weights_of_some_builders(recorded):
    builders = recorded["builders"]
    functions = {name for name in models.__all__ if name.islower()}
    assert set(builders) == functions - {"create", "presets"}
    check_weights({name: builders[name] for name in FAST_BUILDERS}, golden_models.builder)


@pytest.mark.slow
def test_seeds_give_the_weights_of_all_builders_and_presets(recorded):
    others = {n: x for n, x in recorded["builders"].items() if n not in FAST_BUILDERS}
    check_weights(others, golden_models.builder)
    presets, alike = recorded["presets"], {}
    assert set(presets) == set(models.presets())
    for name in presets:
        alike.setdefault(golden_models.arguments_of(name), []).append(name)
    for first, *others in alike.values():
        assert all(presets[name] == presets[first] for name in others), others
    check_weights({name: presets[name] for name, *_ in alike.values()}, golden_models.preset)


def test_the_files_stay_small():
    sizes = {path.name: path.stat().st_size for path in FILES.iterdir()}
    assert max(sizes.values()) < 200_000
    assert sum(sizes.values()) < 4_000_000
