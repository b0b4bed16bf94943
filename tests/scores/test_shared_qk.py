import math

import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.scores import SharedQK

B, N, T, S, H = 2, 3, 5, 7, 11
QUERY, KEY = oracles.random(B, N, T, H), oracles.random(B, N, S, H)


def test_oracle():
    logits = np.asarray(SharedQK()(QUERY, KEY))
    assert logits.shape == (B, N, T, S)
    for b, n, t, s in np.ndindex(B, N, T, S):
        query, key = QUERY[b, n, t].astype("float64"), KEY[b, n, s].astype("float64")
        length = math.sqrt(oracles.dot(key, key))
        assert abs(logits[b, n, t, s] - oracles.scaled_dot(query, key) / length) < 1e-5


def test_a_key_of_zeros_scores_zero_and_has_no_gradient():
    key = tf.Variable(KEY * np.array([0, 1, 1, 1, 1, 1, 1], "float32")[:, None])
    with tf.GradientTape() as tape:
        logits = SharedQK()(QUERY, key)
        total = tf.reduce_sum(tf.square(logits - 1))
    assert not logits.numpy()[..., 0].any()
    gradient = tape.gradient(total, key).numpy()
    assert np.isfinite(gradient).all() and not gradient[:, :, 0].any() and gradient[:, :, 1].any()


@pytest.mark.parametrize(
    "dtype, tolerance, scale",
    [("float16", 2e-3, 1e-3), ("float16", 2e-3, 1e3), ("bfloat16", 2e-2, 1e3)],
)
def test_half_precision(dtype, tolerance, scale):
    query, key = tf.cast(QUERY, dtype), tf.cast(scale * KEY, dtype)
    logits = SharedQK()(query, key)
    assert logits.dtype == ("float32" if dtype == "float16" else dtype)
    expected = SharedQK()(tf.cast(query, "float32"), tf.cast(key, "float32"))
    np.testing.assert_allclose(tf.cast(logits, "float32"), expected, atol=tolerance)
