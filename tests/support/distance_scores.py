"""What scores that look at the distance of positions have in common, checked pair by pair."""

import numpy as np
import oracles
import tensorflow as tf

from keras_attn.attention.inputs import AttentionInputs, PositionRange, TileSizes
from keras_attn.attention.softmax import attend_logits
from keras_attn.patterns import Causal, Dense, Fixed, Local, Strided

B, N, T, S, H = 2, 3, 5, 7, 4
QUERY, KEY = oracles.random(B, N, T, H), oracles.random(B, N, S, H)
PLANS = [Dense(), Causal(), Local(5), Local(4, causal=False), Strided(4), Fixed(4, 2)]


def in_rows(positions):
    return np.broadcast_to(positions, (B, np.shape(positions)[-1]))


def check_positions(layer, formula, atol):
    """All pairs, keys before and after their query; positions of each row and in disorder.

    `formula(layer, query, key, i, j)` gives (B, N, T, S) for positions (B, T) and (B, S).
    """
    rng = np.random.default_rng(0)
    row_by_row = rng.integers(0, 12, (B, T)), rng.integers(0, 30, (B, S))
    for queries, keys in (
        (PositionRange(2, T), PositionRange(0, S)),
        (PositionRange(-3, T, 2), PositionRange(1, S, 2)),
        (np.arange(2, 2 + T), PositionRange(0, S)),
        (rng.permutation(20)[:T], rng.permutation(20)[:S]),
        row_by_row,
        (row_by_row[0][:, None], row_by_row[1][:, None]),
    ):
        i, j = (
            np.asarray(p.tensor())
            if isinstance(p, PositionRange)
            else np.reshape(p, (-1, p.shape[-1]))
            for p in (queries, keys)
        )
        expected = formula(layer, QUERY, KEY, in_rows(i), in_rows(j))
        logits = layer(QUERY, KEY, query_positions=queries, key_positions=keys)
        np.testing.assert_allclose(logits, expected, atol=atol)
    default = formula(layer, QUERY, KEY, in_rows(np.arange(S - T, S)), in_rows(np.arange(S)))
    np.testing.assert_allclose(layer(QUERY, KEY), default, atol=atol)


def check_in_tiles(layer, formula, pattern, atol):
    """A plan gives what the formula over the whole matrix does, gradients of weights too."""
    tiles = TileSizes(chunk_scores=1, block_scores=700, least_group=4)
    length = 37
    inputs = [tf.constant(oracles.random(B, N, length, H, seed=n)) for n in range(3)]
    places = PositionRange(0, length), PositionRange(0, length)
    i = in_rows(np.arange(length))
    expected = formula(layer, *(oracles.numpy_of(x) for x in inputs[:2]), i, i)
    whole = layer(*inputs[:2], query_positions=places[0], key_positions=places[1])
    np.testing.assert_allclose(whole, expected, atol=atol)

    def run(attention):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = attention(*inputs)
            loss = tf.reduce_sum(output * tf.cos(tf.range(float(H))))
        sources = [*inputs, *(w.value for w in layer.trainable_variables)]
        return output, *map(tf.convert_to_tensor, tape.gradient(loss, sources))

    def matrix(query, key, value):
        operands = AttentionInputs(query, key, value, *places, layer)
        logits = layer(query, key, query_positions=places[0], key_positions=places[1])
        return attend_logits(logits, value, pattern.dense_mask_and_bias(operands)[0])[0]

    def plan(query, key, value):
        inputs = AttentionInputs(query, key, value, *places, layer, tile_sizes=tiles)
        return pattern.plan.attend(inputs)[0]

    for gradient, wanted in zip(run(plan), run(matrix), strict=True):
        scale = max(1.0, np.abs(wanted).max())
        np.testing.assert_allclose(gradient / scale, wanted / scale, atol=2e-5)
