"""Steps and remainders of ACT and ACTRNN as outputs, against loops in float64."""

import act_rnns as rnn
import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from act_depths import CONTEXT, MOST, REAL, B, D, T, X, built, oracle
from keras import ops
from marks import slow

from keras_attn.depth import ACTRNN, ACTCell, Halting
from keras_attn.depth.halting import record_halting

ATOL = 2e-5


def assert_is_oracle(halting, layer, real=REAL, x=X):
    _, taken, remainder, _ = oracle(layer, x, real)
    assert isinstance(halting, Halting)
    assert keras.backend.standardize_dtype(halting.steps.dtype) == "int32"
    np.testing.assert_array_equal(halting.steps, taken)
    np.testing.assert_allclose(halting.remainder, remainder, atol=ATOL)
    assert not np.asarray(halting.steps)[~real].any()
    assert not np.asarray(halting.remainder)[~real].any()


@pytest.mark.slow
def test_halting_is_the_last_of_the_outputs():
    layer = built()
    output, scores, states, halting = layer(
        X, padding_mask=REAL, return_attention_scores=True, return_hidden_states=True,
        return_halting=True,
    )  # fmt: skip
    assert len(scores) == len(states) == MOST
    assert_is_oracle(halting, layer)
    np.testing.assert_allclose(output, layer(X, padding_mask=REAL), atol=1e-6)


@pytest.mark.slow
def test_cached_positions_have_the_halting_of_one_pass():
    layer = built(3, block_arguments={"cross": True})
    _, whole = layer(X, CONTEXT, return_halting=True)
    cache, context_cache = layer.initial_cache(B, T), layer.context_cache(ops.array(CONTEXT))
    for start, end in ((0, 2), (2, 5)):
        part = {"cache": cache, "context_cache": context_cache, "return_halting": True}
        _, cache, halting = layer(X[:, start:end], **part)
        for output, expected in zip(halting, whole, strict=True):
            np.testing.assert_allclose(output, expected[:, start:end], atol=ATOL)


@pytest.mark.slow
def test_a_functional_model_returns_them():
    layer, inputs = built(), keras.Input((None, D))
    output, halting = layer(keras.layers.Masking()(inputs), return_halting=True)
    model = keras.Model(inputs, [output, *halting])
    x = np.where(REAL[..., None], X, 0).astype("float32")
    predicted = Halting(*model.predict(x, verbose=0)[1:])
    assert_is_oracle(predicted, layer, x=x)


@pytest.mark.parametrize("policy", ["mixed_float16", slow("float64")])
def test_remainders_are_float32_at_least(policy):
    keras.config.set_dtype_policy(policy)
    layer = built()
    _, halting = layer(X, padding_mask=REAL, return_halting=True)
    dtype = keras.backend.standardize_dtype(halting.remainder.dtype)
    assert dtype == ("float64" if policy == "float64" else "float32")
    steps, remainder = map(np.asarray, halting)
    assert steps[REAL].min() >= 1 and not steps[~REAL].any() and not remainder[~REAL].any()
    assert np.all((remainder >= 0) & (remainder <= 1))


@pytest.mark.slow
def test_halting_of_an_rnn_equals_the_formula():
    options = {"go_backwards": True, "zero_output_for_mask": True, "return_state": True}
    layer = rnn.built("lstm", **options)
    _, _, taken, remainder = rnn.oracle(layer.cell, rnn.X[:, ::-1], rnn.REAL[:, ::-1])

    def run(**more):
        return layer(rnn.X, mask=tf.constant(rnn.REAL), training=False, **more)

    *results, halting = tf.function(run)(return_halting=True)
    np.testing.assert_array_equal(halting.steps, taken[:, ::-1])
    np.testing.assert_allclose(halting.remainder, remainder[:, ::-1], atol=ATOL)
    assert keras.backend.standardize_dtype(halting.steps.dtype) == "int32"
    oracles.check_each(results, run(), atol=1e-6)


@pytest.mark.slow
def test_stacked_cells_have_a_row_each():
    cells = [
        ACTCell(keras.layers.SimpleRNNCell(7), 3, halting_bias=-1.0, name="low"),
        keras.layers.GRUCell(5),
        ACTCell(keras.layers.SimpleRNNCell(3), 2, halting_bias=1.0, name="high"),
    ]
    layer = ACTRNN(cells, return_sequences=True)
    inputs = keras.Input((rnn.T, rnn.D))
    output, halting = layer(inputs, return_halting=True)
    assert halting.steps.shape == (None, 2, rnn.T)
    oracles.scramble(layer, seed=1, scale=0.8)
    output, steps, remainder = keras.Model(inputs, [output, *halting])(rnn.X)
    np.testing.assert_array_equal(output, layer(rnn.X))
    low = ACTRNN(cells[0], return_sequences=True)
    _, alone = low(rnn.X, return_halting=True)
    np.testing.assert_array_equal(steps[:, 0], alone.steps)
    np.testing.assert_allclose(remainder[:, 0], alone.remainder, atol=ATOL)
    assert steps.shape == (rnn.B, 2, rnn.T)


@pytest.mark.slow
def test_a_scope_gets_every_run():
    layer, records = built(), []
    with record_halting(lambda of, halting: records.append((of, halting))):
        layer(X)
        _, returned = layer(X, return_halting=True)
    layer(X)
    assert [of for of, _ in records] == [layer, layer]
    np.testing.assert_array_equal(records[0][1].steps, returned.steps)
