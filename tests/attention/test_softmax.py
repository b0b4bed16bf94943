import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.attention.softmax import attend_logits

B, N, T, S, HV = 2, 3, 5, 7, 4
LOGITS, VALUE = oracles.random(B, N, T, S, scale=3), oracles.random(B, N, S, HV)
MASK = np.random.default_rng(0).random((B, N, T, S)) < 0.5
MASK[0, 0, 0] = False  # one empty row, one row with a single key
MASK[0, 0, 1] = [False] * (S - 1) + [True]


def test_oracle():
    output, weights = attend_logits(LOGITS, VALUE, MASK)
    for b, n, t in np.ndindex(B, N, T):
        expected = np.array(oracles.softmax(LOGITS[b, n, t].astype("float64"), MASK[b, n, t]))
        np.testing.assert_allclose(weights[b, n, t], expected, atol=1e-6)
        np.testing.assert_allclose(output[b, n, t], expected @ VALUE[b, n], atol=1e-5)


def test_forbidden_keys_weigh_exactly_nothing_whatever_their_logits():
    huge = np.where(MASK, LOGITS, 1e20).astype("float32")
    for output, expected in zip(
        attend_logits(huge, VALUE, MASK), attend_logits(LOGITS, VALUE, MASK), strict=True
    ):
        np.testing.assert_array_equal(output, expected)
    assert np.all(np.asarray(attend_logits(huge, VALUE, MASK)[1])[~MASK] == 0)


def test_far_logits_do_not_overflow():
    for shift in (-1e4, 1e4):
        output, weights = attend_logits(LOGITS + np.float32(shift), VALUE, MASK)
        np.testing.assert_allclose(weights, attend_logits(LOGITS, VALUE, MASK)[1], atol=1e-2)
        assert np.all(np.isfinite(output))


@pytest.mark.parametrize("mask", [None, np.ones((T, 1), bool)])
def test_a_single_key_gets_all_the_weight(mask):
    output, weights = attend_logits(LOGITS[..., :1], VALUE[:, :, :1], mask)
    assert np.all(np.asarray(weights) == 1)
    np.testing.assert_array_equal(output, np.repeat(VALUE[:, :, :1], T, axis=2))


def test_a_single_forbidden_key_gets_none():
    output, weights = attend_logits(LOGITS[..., :1], VALUE[:, :, :1], np.zeros((T, 1), bool))
    assert np.all(np.asarray(weights) == 0) and np.all(np.asarray(output) == 0)


def test_the_softmax_is_in_float32():
    dtype = "float16"
    logits, value = tf.cast(LOGITS, dtype), tf.cast(VALUE, dtype)
    output, weights = attend_logits(logits, value, MASK)
    assert output.dtype == dtype and weights.dtype == "float32"
    exact = attend_logits(tf.cast(logits, "float32"), VALUE, MASK)[1]
    np.testing.assert_array_equal(weights, exact)


def test_gradient_of_an_empty_row_is_zero():
    logits, value = tf.constant(LOGITS), tf.constant(VALUE)
    with tf.GradientTape() as tape:
        tape.watch([logits, value])
        loss = tf.reduce_sum(attend_logits(logits, value, MASK)[0] ** 2)
    gradient, value_gradient = tape.gradient(loss, [logits, value])
    assert np.all(gradient.numpy()[0, 0, 0] == 0)
    assert np.all(np.isfinite(gradient)) and np.all(np.isfinite(value_gradient))
    assert np.all(gradient.numpy()[~MASK] == 0)


def test_dropout_changes_the_output_and_not_the_returned_weights():
    output, weights = attend_logits(LOGITS, VALUE, MASK, drop=lambda w: w * 0)
    assert np.all(np.asarray(output) == 0)
    np.testing.assert_array_equal(weights, attend_logits(LOGITS, VALUE, MASK)[1])


def test_no_warning_of_a_softmax_over_one_key(recwarn):
    keras.backend.clear_session()
    attend_logits(LOGITS[..., :1], VALUE[:, :, :1])
    assert not [w for w in recwarn if "softmax" in str(w.message)]
