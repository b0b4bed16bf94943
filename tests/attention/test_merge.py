import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.attention.softmax import (
    FORBIDDEN,
    attend_logits,
    attend_logits_with_logsumexp,
    merge_by_logsumexp,
)

B, N, T, S, HV = 2, 3, 5, 11, 4
LOGITS, VALUE = oracles.random(B, N, T, S, scale=3), oracles.random(B, N, S, HV)
MASK = np.random.default_rng(0).random((B, N, T, S)) < 0.6
MASK[0, 0, 0] = False  # a query without keys
MASK[0, 0, 1, 3:] = False  # and one without keys in some parts


def in_parts(logits, value, mask, cuts=(3, 4, 9)):
    """Attention to a few keys at a time, merged."""
    starts, ends = (0, *cuts), (*cuts, S)
    return merge_by_logsumexp(
        [
            attend_logits_with_logsumexp(logits[..., a:b], value[:, :, a:b], mask[..., a:b])
            for a, b in zip(starts, ends, strict=True)
        ]
    )


@pytest.mark.parametrize("cuts, shift", [((), 0), ((1,), 1e3), ((3, 4, 9), 0), ((2, 5), -1e3)])
def test_parts_make_the_softmax_over_their_union(cuts, shift):
    logits = LOGITS + np.float32(shift)
    output, log_weight = in_parts(logits, VALUE, MASK, cuts)
    assert output.shape == (B, N, T, HV) and log_weight.shape == (B, N, T, 1)
    for b, n, t in np.ndindex(B, N, T):
        row = logits[b, n, t].astype("float64")
        weights = np.array(oracles.softmax(row, MASK[b, n, t]))
        # A logit of a thousand has no more digits.
        atol = 1e-4 if shift else 1e-5
        np.testing.assert_allclose(output[b, n, t], weights @ VALUE[b, n], atol=atol)
        if MASK[b, n, t].any():
            top = row[MASK[b, n, t]].max()
            total = top + np.log(np.exp(row[MASK[b, n, t]] - top).sum())
            np.testing.assert_allclose(log_weight[b, n, t, 0], total, rtol=1e-6, atol=1e-5)


def test_where_no_part_has_keys_there_is_nothing():
    output, log_weight = (np.asarray(x) for x in in_parts(LOGITS, VALUE, MASK))
    assert np.all(output[0, 0, 0] == 0) and log_weight[0, 0, 0, 0] <= FORBIDDEN / 2


def test_a_part_without_keys_changes_no_bit():
    some = attend_logits_with_logsumexp(LOGITS, VALUE, np.ones((T, S), bool))
    none = attend_logits_with_logsumexp(LOGITS + 50, VALUE, np.zeros((T, S), bool))
    for parts in ([some, none], [none, some]):
        for output, expected in zip(merge_by_logsumexp(parts), some, strict=True):
            np.testing.assert_array_equal(output, expected)


def test_gradients_are_those_of_one_softmax():
    tensors = [tf.constant(LOGITS), tf.constant(VALUE)]
    gradients = []
    for compute in (attend_logits, in_parts):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            loss = tf.reduce_sum(tf.sin(compute(*tensors, MASK)[0]))
        gradients.append(tape.gradient(loss, tensors))
    for whole, parts in zip(*gradients, strict=True):
        np.testing.assert_allclose(parts, whole, atol=1e-5)
        assert np.all(np.isfinite(parts))


def test_the_gradient_of_the_log_weight_is_the_softmax():
    logits = tf.constant(LOGITS)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = tf.reduce_sum(in_parts(logits, VALUE, MASK)[1])
    weights = attend_logits(LOGITS, VALUE, MASK)[1]
    some = MASK.any(-1)
    np.testing.assert_allclose(tape.gradient(loss, logits)[some], weights[some], atol=1e-5)


def test_log_weights_are_float32_whatever_the_values():
    dtype = "float16"
    output, log_weight = in_parts(tf.cast(LOGITS, dtype), tf.cast(VALUE, dtype), MASK)
    assert output.dtype == dtype and log_weight.dtype == "float32"
    expected = attend_logits(tf.cast(LOGITS, dtype), tf.cast(VALUE, dtype), MASK)[0]
    np.testing.assert_allclose(*(oracles.numpy_of(x) for x in (output, expected)), atol=4e-3)
