"""Cosine scores: the formula, the scale and its bound, and vectors without a direction."""

import math

import numpy as np
import oracles
import pytest
import tensorflow as tf
from distance_scores import KEY, QUERY, B, H, N, S, T

from keras_attn.scores import Cosine

SCALES = [2.0, 17.0, 300.0]


def built(**arguments):
    score = Cosine(**arguments)
    score.build_for((B, N, T, H), (B, N, S, H))
    score.log_scale.assign(np.log(SCALES))
    return score


def formula(score, query, key, i=None, j=None):
    scales = np.minimum(np.exp(oracles.numpy_of(score.log_scale)), score.max_scale)
    logits = np.zeros((*query.shape[:3], key.shape[2]))
    for b, n, t, s in np.ndindex(logits.shape):
        q, k = query[b, n, t].astype("float64"), key[b, n, s].astype("float64")
        logits[b, n, t, s] = scales[n] * (q @ k) / math.sqrt((q @ q) * (k @ k))
    return logits


def test_logits_equal_the_formula_with_a_scale_for_each_head():
    np.testing.assert_allclose(built()(QUERY, KEY), formula(built(), QUERY, KEY), atol=1e-4)


def test_a_scale_beyond_the_largest_has_no_effect_and_no_gradient():
    score = built(max_scale=50.0)
    with tf.GradientTape() as tape:
        logits = score(QUERY, KEY)
        total = tf.reduce_sum(logits * tf.range(float(S)))
    gradient = tape.gradient(total, score.log_scale.value).numpy()
    assert gradient[0] != 0 and gradient[1] != 0 and gradient[2] == 0
    assert 40 < np.abs(logits).max() <= 50.001


def test_a_vector_of_zeros_scores_zero_and_has_no_gradient():
    score, query, key = built(), tf.Variable(QUERY * [[0], *[[1]] * (T - 1)]), tf.Variable(KEY)
    key.assign(KEY * [*[[1]] * (S - 1), [0]])
    with tf.GradientTape() as tape:
        logits = score(query, key)
        total = tf.reduce_sum(tf.square(logits - 1))
    assert not logits.numpy()[:, :, 0].any() and not logits.numpy()[..., -1].any()
    query_gradient, key_gradient = (x.numpy() for x in tape.gradient(total, [query, key]))
    assert np.isfinite(query_gradient).all() and np.isfinite(key_gradient).all()
    assert (
        not query_gradient[:, :, 0].any()
        and query_gradient[:, :, 1].any()
        and not key_gradient[:, :, -1].any()
    )


@pytest.mark.parametrize(
    "dtype, tolerance, size",
    [("float16", 2e-3, 1e-3), ("float16", 2e-3, 1e3), ("bfloat16", 2e-2, 1e3)],
)
def test_half_precision_keeps_lengths_and_scales_exact(dtype, tolerance, size):
    """In float16 the square of a length of 1000 is infinite, that of 1e-3 zero."""
    score, bound = built(dtype=f"mixed_{dtype}"), 100.0
    query, key = tf.cast(size * QUERY, dtype), tf.cast(size * KEY, dtype)
    logits = score(query, key)
    assert logits.dtype == "float32" and score.log_scale.value.dtype == "float32"
    expected = built()(tf.cast(query, "float32"), tf.cast(key, "float32"))
    np.testing.assert_allclose(logits / bound, expected / bound, atol=tolerance)


@pytest.mark.parametrize("scale, most", [(0, 10), (-1, 10), (11, 10)])
def test_invalid_scales_raise(scale, most):
    with pytest.raises(ValueError, match=f"`scale` must be.*scale={scale}, max_scale={most}"):
        Cosine(scale, most)
