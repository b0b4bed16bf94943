import math

import numpy as np
import oracles
import pytest
import tensorflow as tf
from decoding import check_pieces
from distance_scores import KEY, PLANS, QUERY, B, H, N, check_in_tiles, check_positions

from keras_attn.layers import MultiHeadAttention
from keras_attn.patterns import Local
from keras_attn.scores import LearnedRelative

D = 4


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


def test_oracle():
    """All pairs, with distances below 0 and too long; positions of each row and in disorder."""
    layer = built()
    assert [w.shape for w in layer.weights] == [(D, H)]
    check_positions(layer, formula, atol=1e-5)


@pytest.mark.slow
def test_in_tiles():
    """A plan gives what the formula over the whole matrix does, gradients of weights too."""
    check_in_tiles(built(6), formula, PLANS[4], atol=2e-5)


@pytest.mark.slow
def test_step_by_step_equals_the_full_pass():
    layer = MultiHeadAttention(N, H, score=LearnedRelative(6), pattern=Local(5))
    x = oracles.random(B, 9, 8)
    check_pieces(layer, x, (3, 4, 8, 9), 9)


def test_half_precision():
    exact, half = built(), built(dtype="mixed_bfloat16")
    assert half(QUERY, KEY).dtype == tf.bfloat16
    np.testing.assert_allclose(oracles.numpy_of(half(QUERY, KEY)), exact(QUERY, KEY), atol=0.1)


def test_vectors_are_drawn_from_the_unit_normal():
    layer = LearnedRelative(400)
    layer.build((None, 2, None, 16))
    assert abs(oracles.numpy_of(layer.embeddings).std() - 1) < 0.05


@pytest.mark.parametrize("value", [0, 1.5])
def test_errors(value):
    with pytest.raises(ValueError, match=f"`max_distance`.*max_distance={value}"):
        LearnedRelative(value)
