import math

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.layers import MultiHeadAttention
from keras_attn.memory import KVCache
from keras_attn.ops import causal_rows, rows, windows
from keras_attn.ops.operands import Operands
from keras_attn.ops.progression import Progression
from keras_attn.ops.softmax import attend
from keras_attn.patterns import Causal, Dense, Fixed, Local, Strided
from keras_attn.scores import LearnedRelative

B, N, T, S, H, D = 2, 3, 5, 7, 4, 4
QUERY, KEY = oracles.random(B, N, T, H), oracles.random(B, N, S, H)


def built(max_distance=D, **keywords):
    layer = LearnedRelative(max_distance, **keywords)
    layer.build(QUERY.shape, KEY.shape)
    oracles.scramble(layer, scale=1.0)
    return layer


def formula(layer, query, key, i, j):
    """(B, N, T, S) for positions (B, T) and (B, S), pair by pair."""
    p = oracles.numpy_of(layer.embeddings)
    logits = np.zeros((*query.shape[:3], key.shape[2]))
    for b, n, t, s in np.ndindex(logits.shape):
        distance = i[b, t] - j[b, s]
        known = 0 <= distance < len(p)
        moved = key[b, n, s] + (p[distance] if known else 0.0)
        logits[b, n, t, s] = query[b, n, t] @ moved / math.sqrt(query.shape[-1])
    return logits


def in_rows(positions):
    return np.broadcast_to(positions, (B, np.shape(positions)[-1]))


@pytest.mark.parametrize("max_distance", [1, D, 20])
def test_oracle(max_distance):
    """All pairs, with distances below 0 and too long; positions of each row and in disorder."""
    layer = built(max_distance)
    assert [w.shape for w in layer.weights] == [(max_distance, H)]
    rng = np.random.default_rng(0)
    row_by_row = rng.integers(0, 12, (B, T)), rng.integers(0, 12, (B, S))
    for queries, keys in (
        (Progression(2, T), Progression(0, S)),
        (Progression(-3, T, 2), Progression(1, S, 2)),
        (rng.permutation(9)[:T], rng.permutation(9)[:S]),
        row_by_row,
        (row_by_row[0][:, None], row_by_row[1][:, None]),
    ):
        i, j = (
            np.asarray(p.tensor())
            if isinstance(p, Progression)
            else np.reshape(p, (-1, p.shape[-1]))
            for p in (queries, keys)
        )
        expected = formula(layer, QUERY, KEY, in_rows(i), in_rows(j))
        found = layer(QUERY, KEY, query_positions=queries, key_positions=keys)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    default = formula(layer, QUERY, KEY, in_rows(np.arange(S - T, S)), in_rows(np.arange(S)))
    np.testing.assert_allclose(layer(QUERY, KEY), default, atol=1e-5)


PLANS = [Dense(), Causal(), Local(5), Local(4, causal=False), Strided(4), Fixed(4, 2)]


@pytest.mark.parametrize("pattern", PLANS, ids=repr)
def test_in_tiles(pattern, monkeypatch):
    """Every plan gives what the formula over the whole matrix does, gradients of weights too."""
    monkeypatch.setattr(rows, "TILE_SCORES", 1)
    monkeypatch.setattr(windows, "TILE_SCORES", 700)
    monkeypatch.setattr(causal_rows, "SMALLEST_SIDE", 4)
    layer, length = built(6), 37
    inputs = [tf.constant(oracles.random(B, N, length, H, seed=n)) for n in range(3)]
    places = Progression(0, length), Progression(0, length)

    def run(attention):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = attention(*inputs)
            loss = tf.reduce_sum(output * tf.cos(tf.range(float(H))))
        return output, *tape.gradient(loss, [*inputs, layer.embeddings.value])

    def matrix(query, key, value):
        operands = Operands(query, key, value, *places, layer)
        logits = layer(query, key, query_positions=places[0], key_positions=places[1])
        return attend(logits, value, pattern.matrix(operands)[0])[0]

    def plan(query, key, value):
        return pattern.attend(Operands(query, key, value, *places, layer))[0]

    i = in_rows(np.arange(length))
    expected = formula(layer, *(oracles.numpy_of(x) for x in inputs[:2]), i, i)
    whole = layer(*inputs[:2], query_positions=places[0], key_positions=places[1])
    np.testing.assert_allclose(whole, expected, atol=2e-5)
    for found, wanted in zip(run(plan), run(matrix), strict=True):
        scale = max(1.0, np.abs(wanted).max())
        np.testing.assert_allclose(found / scale, wanted / scale, atol=2e-5)


def test_step_by_step_equals_the_full_pass():
    layer = MultiHeadAttention(N, H, score=LearnedRelative(6), pattern=Local(5))
    x = oracles.random(B, 9, 8)
    full = layer(x, x)
    cache, outputs = KVCache(9).initial(layer, B), []
    for t in range(9):
        output, cache = layer(x[:, t : t + 1], x[:, t : t + 1], cache=cache)
        outputs.append(output)
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), full, atol=1e-5)


def test_half_precision():
    exact, half = built(), built(dtype="mixed_bfloat16")
    assert half(QUERY, KEY).dtype == tf.bfloat16
    np.testing.assert_allclose(oracles.numpy_of(half(QUERY, KEY)), exact(QUERY, KEY), atol=0.1)


def test_save_config():
    layer = built(D, dtype="mixed_bfloat16")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert again.get_config() == layer.get_config()
    assert again.embeddings.shape == (D, H)


def test_vectors_are_drawn_from_the_unit_normal():
    layer = LearnedRelative(400)
    layer.build((None, 2, None, 16))
    assert abs(oracles.numpy_of(layer.embeddings).std() - 1) < 0.05


@pytest.mark.parametrize("value", [0, -1, 1.5])
def test_errors(value):
    with pytest.raises(ValueError, match=f"`max_distance`.*max_distance={value}"):
        LearnedRelative(value)
