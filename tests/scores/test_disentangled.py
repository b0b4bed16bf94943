"""Scores of contents and distances: compared pair by pair, in every plan, in limiting cases."""

import math

import distance_scores
import numpy as np
import oracles
import pytest
from distance_scores import B, H, N, S, T

from keras_attn.layers import MultiHeadAttention
from keras_attn.scores import Disentangled


def built(sizes, directions="both"):
    score = Disentangled(*sizes, directions=directions)
    score.build_for((B, N, T, H), (B, N, S, H))
    for i, weight in enumerate(score.weights):
        weight.assign(oracles.random(*weight.shape, seed=i))
    return score


def bucket(score, d):
    """The row of a distance, by the formula of the authors' code."""
    span, half = score.num_buckets, score.num_buckets // 2
    if score.max_distance is not None and abs(d) > half:
        steps = math.log(abs(d) / half) / math.log((score.max_distance - 1) / half) * (half - 1)
        d = math.copysign(math.ceil(steps - 1e-9) + half, d)
    return int(min(max(d + span, 0), 2 * span - 1))


def formula(score, query, key, i, j, sign=1):
    tables = score.key_table, score.query_table
    num_terms = 1 + sum(table is not None for table in tables)
    zeros = np.zeros((2 * score.num_buckets, query.shape[1], query.shape[3]))
    keys, queries = (zeros if table is None else oracles.numpy_of(table) for table in tables)
    logits = np.zeros((*query.shape[:3], key.shape[2]))
    for b, n, t, s in np.ndindex(logits.shape):
        q, k = query[b, n, t].astype("float64"), key[b, n, s].astype("float64")
        d = int(i[b, t] - j[b, s])
        logits[b, n, t, s] = q @ k + q @ keys[bucket(score, d), n]
        logits[b, n, t, s] += k @ queries[bucket(score, sign * d), n]
    return logits / math.sqrt(num_terms * query.shape[-1])


@pytest.mark.parametrize("directions", ["both", "content_to_position", "position_to_content"])
def test_logits_equal_the_formula_at_positions_in_any_order(directions):
    score = built((6, 17), directions)
    assert len(score.weights) == (2 if directions == "both" else 1)
    distance_scores.check_positions(score, formula, atol=1e-4)


@pytest.mark.parametrize("directions", ["content_to_position", "position_to_content"])
def test_one_direction_is_blockwise_as_it_is_dense(directions):
    layers = [
        MultiHeadAttention(
            N, H, score=Disentangled(6, 17, directions=directions), implementation=implementation
        )
        for implementation in ("blockwise", "dense")
    ]
    x = oracles.random(B, 9, 6)
    for layer in layers:
        layer.build(x.shape, x.shape)
        oracles.scramble(layer)
    np.testing.assert_allclose(*(oracles.numpy_of(layer(x, x)) for layer in layers), atol=1e-5)


@pytest.mark.parametrize("sizes", [(256, 512), (6, 17), (4, None)], ids=str)
def test_buckets_equal_the_formula(sizes):
    score, distances = Disentangled(*sizes), np.arange(-700, 701, dtype="int32")
    expected = [bucket(score, int(d)) for d in distances]
    np.testing.assert_array_equal(score.buckets(distances), expected)
    assert set(expected) == set(range(2 * score.num_buckets))


def test_edges_of_the_buckets():
    """Half of the buckets hold one distance; the last begins after 128 (511 / 128)^(126 / 127)."""
    score, distances = Disentangled(), np.arange(600, dtype="int32")
    rows = np.asarray(score.buckets(distances)) - 256
    np.testing.assert_array_equal(rows[:129], distances[:129])
    edge = int(128 * (511 / 128) ** (126 / 127))
    assert rows[edge] == 254 and set(rows[edge + 1 :]) == {255}
    assert score.buckets(np.array([-512, -511], "int32")).numpy().tolist() == [0, 1]


@pytest.mark.slow
def test_mixed_bfloat16():
    score = Disentangled(6, 17, dtype="mixed_bfloat16")
    layers = [
        MultiHeadAttention(N, H, score=Disentangled(6, 17), implementation="blockwise"),
        MultiHeadAttention(N, H, score=score, implementation="blockwise", dtype="mixed_bfloat16"),
    ]
    x = oracles.random(B, 9, 6)
    for layer in layers:
        layer.build(x.shape, x.shape)
        oracles.scramble(layer)
    np.testing.assert_allclose(*(oracles.numpy_of(layer(x, x)) for layer in layers), atol=0.05)


@pytest.mark.parametrize(
    "sizes, sentence",
    [
        ((2,), "`num_buckets`.*=2"),
        ((5,), "an even number.*=5"),
        ((8, 5), "`max_distance`.*at least 6.*5"),
        ((8, 17, "c2p"), "`directions`.*'c2p'"),
    ],
)
def test_invalid_sizes_raise(sizes, sentence):
    with pytest.raises(ValueError, match=sentence):
        Disentangled(*sizes)
