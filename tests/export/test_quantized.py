"""Exports whose large weights are stored in eight or four bits."""

import glob
import os

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn import export, models
from keras_attn.commands.export import main
from keras_attn.export._saved_model.quantization import (
    FORMATS,
    MIN_SIZE,
    restore_int4,
    restore_int8,
    round_to_int4,
    round_to_int8,
)

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 32, "intermediate_dim": 53}
V = 37
INPUTS = {
    "token_ids": np.array([[5, 9, 11, 3], [8, 3, 0, 0]], "int32"),
    "lengths": np.array([4, 2], "int32"),
}
IS_VALID = INPUTS["token_ids"] > 0


def variables(directory):
    """Bytes of the weights in a file."""
    return sum(map(os.path.getsize, glob.glob(os.path.join(directory, "variables", "*.data*"))))


def rounded_by(matrix, axis):
    """Round each row (axis 0) or column by itself; its greatest magnitude is 127 steps."""
    steps = np.abs(matrix).max(axis=1 - axis, keepdims=True).astype("float64") / 127
    return np.round(matrix / steps) * steps


def rounded_model(model, kind="int8"):
    """A copy of the model with each large weight rounded."""
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(model))
    again.set_weights(model.get_weights())
    for weight in again.weights:
        if len(weight.shape) > 1 and np.prod(weight.shape) >= MIN_SIZE:
            array = np.asarray(weight)
            to_arrays, restore = FORMATS[kind]
            weight.assign(restore(*map(tf.constant, to_arrays(array)), array.shape))
    return again


def logits(model):
    return np.asarray(model({"token_ids": INPUTS["token_ids"]}), "float32")[IS_VALID]


@pytest.fixture(scope="module")
def model():
    model = models.bert(V, 1, 2, 256, 4096, max_length=16)  # weights are most of the files
    oracles.scramble(model, seed=5, scale=0.1)
    return model


@pytest.mark.parametrize("shape", [(23, 31), (29, 3, 37), (5, 4, 31)])
def test_large_weights_and_a_large_column_have_steps_of_their_own(shape):
    """The error is below half a step, and below that of steps for rows or for columns alone."""
    matrix = oracles.random(np.prod(shape[:-1]), shape[-1])
    matrix[0], matrix[:, 0] = 40 * matrix[0], 30 * matrix[:, 0]
    integers, scale, columns = round_to_int8(matrix.reshape(shape))
    groups = -(-matrix.size // 32)
    assert (integers.dtype, integers.shape) == (np.int8, (groups, 32))
    assert (scale.dtype, scale.shape) == (np.float16, (groups, 1))
    assert (columns.dtype, columns.shape) == (np.float32, (1, shape[-1]))
    restored = restored_int8(integers, scale, columns, matrix.shape)
    steps = np.repeat(scale, 32)[: matrix.size].reshape(matrix.shape) * columns
    assert (np.abs(restored - matrix) <= 0.501 * steps).all()
    error, by_rows, by_columns = (
        np.square(rounded - matrix).sum()
        for rounded in (restored, rounded_by(matrix, 0), rounded_by(matrix, 1))
    )
    assert error < 0.5 * min(by_rows, by_columns)


def restored_int8(integers, scale, columns, shape):
    """The weights by loops over their places in memory."""
    flat = [
        float(integers[i // 32, i % 32]) * float(scale[i // 32, 0]) * columns[0, i % shape[-1]]
        for i in range(np.prod(shape))
    ]
    return np.reshape(flat, shape)


@pytest.mark.parametrize("weight", [np.zeros((7, 11)), np.eye(7, 11), 1e-30 * np.ones((7, 11))])
def test_rows_and_columns_of_zeros_stay_zero(weight):
    arrays = round_to_int8(weight.astype("float32"))
    for restored in (restored_int8(*arrays, (7, 11)), restore_int8(*arrays, (7, 11))):
        np.testing.assert_allclose(restored, weight, rtol=1e-3, atol=1e-30)


@pytest.mark.parametrize("shape", [(7, 11), (5, 3, 64), (1, 31)])
def test_four_bits_have_a_scale_for_each_32_weights(shape):
    """Each group in loops: with the step of its largest weight, or with a smaller and less error.

    One group is much larger than the rest, one has a single large weight, one is zero.
    """
    weight = oracles.random(*shape)
    flat = weight.reshape(-1)
    flat[:32], flat[32:64] = 50 * flat[:32], 0
    flat[-1] = 20
    codes, scale = round_to_int4(weight)
    groups = -(-weight.size // 32)
    assert codes.shape == (groups, 16) and codes.dtype == np.uint8
    assert scale.shape == (groups, 1) and scale.dtype == np.float16
    restored = np.asarray(restore_int4(tf.constant(codes), tf.constant(scale), shape))
    is_clipped = []
    for group in range(groups):
        part = flat[32 * group : 32 * group + 32].astype("float64")
        step, own = float(scale[group, 0]), restored.reshape(-1)[32 * group : 32 * group + 32]
        levels = [max(-8, min(7, round(w / step))) if step else 0 for w in part]
        np.testing.assert_allclose(own, np.multiply(levels, step), rtol=1e-6, atol=1e-6)
        widest = max(part, key=abs) / -8
        plain = np.clip(np.round(part / (widest or 1)), -8, 7) * widest
        assert np.square(own - part).sum() <= 1.01 * np.square(plain - part).sum() + 1e-9
        assert step * widest >= 0 and abs(step) <= 1.001 * abs(widest)
        is_clipped.append(abs(step) < 0.99 * abs(widest))
    assert any(is_clipped) or groups < 9  # most groups gain nothing


def assert_close(output, expected):
    np.testing.assert_allclose(np.asarray(output)[IS_VALID], expected, atol=1e-4)


@pytest.mark.slow
def test_outputs_are_those_of_rounded_weights(model, tmp_path):
    """Loaded twice in Python, and in a session as in a server; the model itself is unchanged."""
    before = model.get_weights()
    directory = export.saved_model(model, tmp_path, quantize="int8")
    for weight, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)
    expected = logits(rounded_model(model))
    assert np.abs(logits(model) - expected).max() > 1e-3
    loaded = [tf.saved_model.load(directory) for _ in range(2)]
    for again in loaded:
        assert_close(again.signatures["logits"](**INPUTS)["logits"], expected)
    del again, loaded[0]
    assert_close(loaded[0].signatures["logits"](**INPUTS)["logits"], expected)
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], directory)
        signature = meta_graph.signature_def["logits"]
        feed = {signature.inputs[name].name: array for name, array in INPUTS.items()}
        assert_close(session.run(signature.outputs["logits"].name, feed), expected)
    assert variables(directory) < 0.272 * 4 * model.count_params()
    inspection = export.inspect(directory)
    assert set(inspection.outcomes.values()) == {"same"} and not inspection.faults
    assert inspection.file_bytes < 0.31 * 4 * model.count_params()
    # The hash of the variables is that of the int8 ones, and has been compared.
    assert tf.saved_model.experimental.read_fingerprint(directory).checkpoint_hash


@pytest.mark.slow
def test_four_bits_give_the_outputs_of_rounded_weights(model, tmp_path):
    directory = export.saved_model(model, tmp_path, quantize="int4")
    expected = logits(rounded_model(model, "int4"))
    assert np.abs(logits(model) - expected).max() > 1e-2
    assert_close(tf.saved_model.load(directory).signatures["logits"](**INPUTS)["logits"], expected)
    assert variables(directory) < 4 * model.count_params() / 6.8
    inspection = export.inspect(directory)
    assert set(inspection.outcomes.values()) == {"same"} and not inspection.faults


def check_smaller_and_sound(directory, model):
    assert 0 < variables(directory) < 0.6 * 4 * model.count_params()
    inspection = export.inspect(directory)
    assert inspection.outcomes and not inspection.faults
    assert set(inspection.outcomes.values()) <= {"same", "runs"}


@pytest.mark.slow
def test_a_model_in_bfloat16_gives_the_logits_of_rounded_weights(model, tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    mixed = models.bert(V, 1, 2, 256, 4096, max_length=16)
    mixed.set_weights(model.get_weights())
    directory = export.saved_model(mixed, tmp_path, quantize="int8")
    output = tf.saved_model.load(directory).signatures["logits"](**INPUTS)["logits"]
    expected = logits(rounded_model(model))
    difference = np.abs(np.asarray(output)[IS_VALID] - expected).max()
    assert difference < 0.05 * np.abs(expected).max()


@pytest.mark.slow
def test_the_command_quantizes_a_model_with_a_memory(tmp_path, capsys):
    model = models.transformer_xl(V, **SIZES, memory_length=5)
    model.save(tmp_path / "model.keras")
    arguments = [str(tmp_path / "model.keras"), str(tmp_path / "export"), "--quantize", "int8"]
    assert main(["saved_model", *arguments]) == 0
    check_smaller_and_sound(capsys.readouterr().out.strip(), model)


def test_unknown_formats_are_refused(encoder_export, tmp_path):
    with pytest.raises(ValueError, match="`quantize` must be one of None, 'int8'.*'int2'"):
        export.saved_model(encoder_export[0], tmp_path / "export", quantize="int2")
    assert not (tmp_path / "export").exists()
