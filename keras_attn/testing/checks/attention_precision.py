"""Attention under a low precision."""

import keras
import numpy as np

from keras_attn.testing.checks.precision import SPACING, compare
from keras_attn.testing.numbers import random

POSITIONS = (10, 1000, 4095)
QUERIES = 16


def precision(subject):
    """Mixed precision is finite and close to float32 at positions 10, 1000 and 4095.

    Scores, where given, are float32 and their rows sum to 1.
    """
    layer = subject.copy()
    calls, expected = {}, {}
    for position in POSITIONS:
        x = random(1, position + 1, subject.hidden_dim, seed=12)
        calls[position] = x[:, -QUERIES:], x
        try:
            expected[position] = subject.attend(layer, *calls[position])
        except ValueError:
            if position == POSITIONS[0]:
                raise
            break  # the layer refuses sequences of that length
    for policy, spacing in SPACING.items():
        low = subject.copy(policy)
        for position, output in expected.items():
            found = subject.attend(low, *calls[position])
            yield from compare(policy, [found], [output], spacing, f"at position {position}")
        if subject.accepts("return_attention_scores"):
            yield from _scores(subject, low, policy)


def large_logits(subject):
    """Logits beyond float16's largest number do no harm under mixed_float16."""
    layer = subject.copy("mixed_float16")
    query, x = 300 * subject.query, 300 * subject.value
    if not np.isfinite(subject.attend(layer, query, x)).all():
        yield (
            "Under mixed_float16, inputs of size 300, whose scores pass 65504, were expected to "
            "give a finite output, but it is not."
        )


def _scores(subject, layer, policy):
    # Thirteen equal keys: a thirteenth is far from what a low precision can hold.
    x = np.broadcast_to(random(1, 1, subject.hidden_dim), (1, 13, subject.hidden_dim))
    _, found = subject.raw_call(layer, x[:, -1:], x, return_attention_scores=True)
    dtype = keras.backend.standardize_dtype(found.dtype)
    if dtype != "float32":
        yield f"Under {policy}, scores of float32 were expected, but they are {dtype}."
    sums = keras.ops.convert_to_numpy(keras.ops.cast(found, "float32")).sum(axis=-1)
    worst = sums.flat[np.argmax(np.minimum(np.abs(sums - 1), np.abs(sums)))]
    if min(abs(worst - 1), abs(worst)) > 1e-4:
        yield (
            f"Under {policy}, the scores of 13 equal keys were expected to sum to 1, but sum to "
            f"{worst:.5g}: the softmax is taken in low precision."
        )
