"""Scores that are logarithms of products of features."""

import numpy as np
import oracles
import pytest
import tensorflow as tf
from distance_scores import KEY, QUERY

from keras_attn.scores import ALiBi, Kernel

MAPS = {
    "elu": lambda x: np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))),
    "relu": lambda x: np.maximum(x, 0) + 1e-3,
}


def formula(score, query, key, i=None, j=None):
    query, key = (MAPS[score.features](x.astype("float64")) for x in (query, key))
    logits = np.zeros((*query.shape[:3], key.shape[2]))
    for b, n, t, s in np.ndindex(logits.shape):
        logits[b, n, t, s] = np.log(oracles.dot(query[b, n, t], key[b, n, s]))
    return logits


@pytest.mark.parametrize("name", MAPS)
def test_logits_equal_the_formula(name):
    score = Kernel(name)
    np.testing.assert_allclose(score(QUERY, KEY), formula(score, QUERY, KEY), atol=1e-5)


def test_small_features_keep_their_ratios():
    """elu(x) + 1 would round them to multiples of 6e-8, and to zero from -17 on."""
    keys = -np.arange(10.0, 31.0, dtype="float32")[None, None, :, None]
    logits = oracles.numpy_of(Kernel()(np.zeros((1, 1, 1, 1), "float32"), keys))
    np.testing.assert_allclose(logits[0, 0, 0], keys[0, 0, :, 0], rtol=1e-5)


@pytest.mark.parametrize("name", MAPS)
def test_far_vectors_have_finite_logits_and_gradients(name):
    query, key = (tf.constant(100 * x) for x in (QUERY, KEY))
    with tf.GradientTape() as tape:
        tape.watch([query, key])
        logits = Kernel(name)(query, -tf.abs(key))
        total = tf.reduce_sum(tf.nn.softmax(logits) ** 2)
    assert all(np.isfinite(x).all() for x in (logits, *tape.gradient(total, [query, key])))


def test_features_are_float32_in_half_precision():
    dtype = "float16"
    query, key = tf.cast(200 * QUERY, dtype), tf.cast(200 * KEY, dtype)
    logits = Kernel()(query, key)
    expected = Kernel()(tf.cast(query, "float32"), tf.cast(key, "float32"))
    assert logits.dtype == "float32"
    np.testing.assert_array_equal(logits, expected)


def test_a_sum_with_a_bias_has_no_features():
    assert Kernel().is_linear and not (Kernel() + ALiBi()).is_linear


def test_unknown_features_raise():
    with pytest.raises(ValueError, match="`features` must be one of 'elu', 'relu'.*'gelu'"):
        Kernel("gelu")
