"""Outputs under a low precision, at small and at large positions."""

import keras
import numpy as np

from keras_attn.testing.numerics import compare, has_length, random

# The spacing of numbers at 1.
SPACING = {"mixed_bfloat16": 2**-7, "mixed_float16": 2**-10}
# Roundings of inputs, weights, sums and output add up to a few spacings.
ROUNDINGS = 4
LENGTHS = (4096, 1001, 11)
POSITIONS = (10, 1000, 4095)
QUERIES = 16


def precision(subject):
    """Mixed precision is finite and close to float32 on a long sequence."""
    layer = subject.copy()
    for length in LENGTHS:
        inputs = [_resize(x, length) for x in subject.inputs]
        try:
            expected = subject.call(layer, *inputs)
        except Exception:  # Any layer, which may refuse a length that is too long with any error.
            if length == LENGTHS[-1]:
                raise
            continue
        break
    for policy in SPACING:
        found = subject.call(subject.copy(policy), *inputs)
        condition = f"on inputs of shape {inputs[0].shape}"
        yield from _compare_with_float32(policy, found, expected, condition)


def attention_precision(subject):
    """Mixed precision is finite and close to float32 at positions 10, 1000 and 4095.

    Scores, if the layer returns them, are float32 and their rows sum to 1.
    """
    layer, expected = subject.copy(), {}
    for position in POSITIONS:
        x = random(1, position + 1, subject.hidden_dim, seed=12)
        try:
            expected[position] = x, subject.attend(layer, x[:, -QUERIES:], x)
        except ValueError:
            if position == POSITIONS[0]:
                raise
            break  # the layer refuses sequences of that length
    for policy in SPACING:
        low = subject.copy(policy)
        for position, (x, output) in expected.items():
            found = subject.attend(low, x[:, -QUERIES:], x)
            yield from _compare_with_float32(policy, [found], [output], f"at position {position}")
        if subject.accepts("return_attention_scores"):
            yield from _check_scores(subject, low, policy)


def large_logits(subject):
    """Logits beyond float16's largest number do no harm under mixed_float16."""
    layer = subject.copy("mixed_float16")
    query, x = 300 * subject.query, 300 * subject.value
    if not np.isfinite(subject.attend(layer, query, x)).all():
        yield (
            "Under mixed_float16, inputs of size 300, whose logits exceed 65504, were expected to "
            "give a finite output, but it is not."
        )


def check_scores_dtype(scores, condition=""):
    dtype = keras.backend.standardize_dtype(scores.dtype)
    if dtype != "float32":
        yield f"Scores of float32 were expected{condition}, but they are {dtype}."


def farthest_sum(subject, scores):
    """The row sum that is farthest from both 0 and 1, and its distance; with sinks only above 1."""
    sums = scores.astype("float64").sum(axis=-1)
    if getattr(subject.layer, "sinks", False):  # they take a part of the weight
        return sums.max(), sums.max() - 1
    distances = np.minimum(np.abs(sums - 1), np.abs(sums))
    return sums.flat[np.argmax(distances)], distances.max()


def _check_scores(subject, layer, policy):
    # Thirteen equal keys: a low precision rounds 1/13 visibly.
    x = np.broadcast_to(random(1, 1, subject.hidden_dim), (1, 13, subject.hidden_dim))
    _, scores = subject.raw_call(layer, x[:, -1:], x, return_attention_scores=True)
    yield from check_scores_dtype(scores, f" under {policy}")
    scores = keras.ops.convert_to_numpy(keras.ops.cast(scores, "float32"))
    total, distance = farthest_sum(subject, scores)
    if distance > 1e-4:
        yield (
            f"Under {policy}, the scores of 13 equal keys were expected to sum to 1, but sum to "
            f"{total:.5g}: the softmax is computed in low precision."
        )


def _compare_with_float32(policy, found, expected, condition):
    """Report results under `policy` that are not finite, or far from those under float32."""
    if not all(np.isfinite(x).all() for x in found):
        yield f"Under {policy} {condition}, the output is not finite."
        return
    sentence = f"Under {policy} {condition}, the output was expected close to that under float32"
    yield from compare(sentence, found, expected, ROUNDINGS * SPACING[policy])


def _resize(x, length):
    """One row of `x`, repeated along the sequence."""
    if not has_length(x):
        return x[:1]
    return np.take(x[:1], np.arange(length) % x.shape[1], axis=1)
