"""Exports whose weights are kept in eight bits."""

import glob
import os

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn import export, models, text
from keras_attn.export.__main__ import main
from keras_attn.export._saved_model.quantization import MIN_SIZE, round_to_int8
from keras_attn.generation import Beam, Sample

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 32, "intermediate_dim": 53}
V, LENGTHS = 37, {"max_length": 5, "max_source_length": 7}
IDS, REAL = np.array([[5, 9, 11, 3], [8, 3, 0, 0]], "int32"), np.array([4, 2], "int32")

INPUTS = {"source_ids": tf.constant(IDS), "source_lengths": tf.constant(REAL)}


def variables(directory):
    """Bytes of the weights in a file."""
    return sum(map(os.path.getsize, glob.glob(os.path.join(directory, "variables", "*.data*"))))


def by_rows(weight, axis):
    """Each index of the axis by itself: its greatest number is 127 steps."""
    found = np.zeros_like(weight, "float64")
    for index in range(weight.shape[axis]):
        part = np.take(weight, index, axis).astype("float64")
        step = np.abs(part).max() / 127
        place = (slice(None),) * (axis % weight.ndim) + (index,)
        found[place] = np.round(part / step) * step
    return found


def in_eight_bits(model):
    """The same model with each large weight rounded."""
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(model))
    again.set_weights(model.get_weights())
    for weight in again.weights:
        if len(weight.shape) > 1 and np.prod(weight.shape) >= MIN_SIZE:
            array = np.asarray(weight)
            choices = [by_rows(array, axis) for axis in (0, -1)]
            weight.assign(min(choices, key=lambda choice: np.square(choice - array).sum()))
    return again


def translated(model, strategy):
    translator = export.IdTranslator(model, strategy, *LENGTHS.values())
    return translator.ids(tf.constant(IDS), tf.constant(REAL))


@pytest.fixture(scope="module")
def model():
    model = models.transformer(V, **SIZES)
    oracles.scramble(model, seed=5, scale=0.3)
    return model


@pytest.mark.parametrize("shape", [(7, 11), (5, 3, 4), (4, 3, 5), (1, 9)])
def test_rounding(shape):
    """With a row and a column that are much larger than the rest, whose step is theirs alone."""
    weight = oracles.random(*shape)
    weight[0], weight[..., 0] = 40 * weight[0], 3 * weight[..., 0]
    whole, scale = round_to_int8(weight)
    assert whole.dtype == np.int8 and scale.dtype == np.float32
    choices = [by_rows(weight, axis) for axis in (0, -1)]
    best = min(choices, key=lambda choice: np.square(choice - weight).sum())
    np.testing.assert_allclose(whole * scale, best, rtol=1e-5, atol=1e-6)
    assert (np.abs(whole * scale - weight) <= 0.501 * scale).all()
    np.testing.assert_array_equal(round_to_int8(np.zeros(shape, "float32"))[0], np.zeros(shape))


def test_answers_are_those_of_rounded_weights(model, tmp_path):
    """In Python, loaded twice, and in a session, as a server has it; the model itself stays."""
    before = model.get_weights()
    directory = export.saved_model(model, tmp_path, strategy=Beam(2), quantize="int8", **LENGTHS)
    for weight, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)
    plain, expected = (translated(each, Beam(2)) for each in (model, in_eight_bits(model)))
    assert np.abs(plain["score"] - expected["score"]).max() > 1e-3
    loaded = [tf.saved_model.load(directory) for _ in range(2)]
    for again in loaded:
        found = again.signatures["ids"](**INPUTS)
        np.testing.assert_array_equal(found["ids"], expected["ids"])
        np.testing.assert_allclose(found["score"], expected["score"], atol=1e-4)
    del again, loaded[0]
    found = loaded[0].signatures["ids"](**INPUTS)
    np.testing.assert_allclose(found["score"], expected["score"], atol=1e-4)
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], directory)
        signature = meta_graph.signature_def["ids"]
        names = [signature.inputs[name].name for name in ("source_ids", "source_lengths")]
        score = session.run(signature.outputs["score"].name, dict(zip(names, (IDS, REAL))))
    np.testing.assert_allclose(score, expected["score"], atol=1e-4)
    inspection = export.inspect(directory)
    assert set(inspection.answers.values()) == {"same"} and not inspection.faults
    # The hash of the variables is that of the int8 ones, and has been compared.
    assert tf.saved_model.experimental.read_fingerprint(directory).checkpoint_hash


def whole(directory):
    """Bytes of all files."""
    return sum(os.path.getsize(p) for p in glob.glob(f"{directory}/**", recursive=True))


def test_the_file_is_a_quarter(tmp_path):
    """The weights' always, and all of it where weights are most of it."""
    model = models.gpt(499, 1, 2, 1024, 4096, max_length=64)
    plain = export.saved_model(model, tmp_path, **LENGTHS)
    small = export.saved_model(model, tmp_path, quantize="int8", **LENGTHS)
    assert variables(small) < 0.27 * variables(plain)
    assert whole(small) < 0.3 * whole(plain)


KINDS = {
    "sampled": lambda: (
        models.gpt(V, **SIZES, max_length=16),
        {"strategy": Sample(0.5), **LENGTHS},
    ),
    "text": lambda: (
        models.transformer(31, **SIZES),
        {"tokenizer": text.Characters("abcdefghijklmnopqrstuvwxyz "), **LENGTHS},
    ),
    "masked": lambda: (models.bert(V, **SIZES, max_length=16), {}),
    "memory": lambda: (models.transformer_xl(V, **SIZES, memory_length=5), {}),
    "spans": lambda: (models.adaptive_span_transformer(V, **SIZES, max_span=8), {}),
    "hashed": lambda: (models.reformer(V, **SIZES, axial_shape=(4, 4), chunk_length=4), LENGTHS),
    "act": lambda: (models.universal_transformer(V, **SIZES, depth="act"), LENGTHS),
    "images": lambda: (models.image_transformer(V, (2, 3, 1), **SIZES), {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model(tmp_path, kind):
    """The file keeps eight bits, and answers as where it was written."""
    model, options = KINDS[kind]()
    plain = export.saved_model(model, tmp_path, **options)
    small = export.saved_model(model, tmp_path, quantize="int8", **options)
    assert variables(small) < 0.6 * variables(plain)
    inspection = export.inspect(small)
    assert inspection.answers and not inspection.faults
    assert set(inspection.answers.values()) <= {"same", "runs"}


def test_sixteen_bit_models(model, tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    mixed = models.transformer(V, **SIZES)
    mixed.set_weights(model.get_weights())
    directory = export.saved_model(mixed, tmp_path, quantize="int8", **LENGTHS)
    found = tf.saved_model.load(directory).signatures["ids"](**INPUTS)
    expected = translated(in_eight_bits(model), "greedy")
    np.testing.assert_allclose(found["score"], expected["score"], rtol=0.05)


def test_command_line_and_refusal(model, tmp_path, capsys):
    with pytest.raises(ValueError, match="`quantize` must be one of None, 'int8'.*'int4'"):
        export.saved_model(model, tmp_path / "export", quantize="int4")
    assert not (tmp_path / "export").exists()
    model.save(tmp_path / "model.keras")
    arguments = [str(tmp_path / "model.keras"), str(tmp_path / "export"), "--quantize", "int8"]
    assert main(["saved_model", *arguments]) == 0
    assert 0 < variables(capsys.readouterr().out.strip()) < 4 * model.count_params()
