import math

import numpy as np
import pytest

from keras_attn.viz import plot_heads, summarize_heads

B, N, T, S = 2, 3, 5, 7


def scores(*shape):
    weights = np.random.default_rng(0).exponential(size=shape).astype("float32")
    return weights / weights.sum(axis=-1, keepdims=True)


def loops(weights):
    """Entropy and distance of one head, (B, T, S), query by query."""
    entropies, distances = [], []
    for row in weights.astype("float64"):
        for i, shares in enumerate(row):
            if not shares.any():
                continue
            shares = shares / shares.sum()
            entropies.append(-sum(p * math.log2(p) for p in shares if p > 0))
            position = i + weights.shape[2] - weights.shape[1]
            distances.append(sum(p * abs(position - j) for j, p in enumerate(shares)))
    return np.mean(entropies), np.mean(distances)


def test_entropy_and_distance_are_those_of_loops():
    weights = scores(B, N, T, S)
    weights[0, :, 2] = 0  # a query that attends to nothing
    weights[1, :, 3] /= 2  # and one that leaves half to a sink
    weights[:, 1, :, 4] = 0
    heads = summarize_heads({"a": [weights, weights[:, :2]]})
    expected = [("a, step 1", 0), ("a, step 1", 1), ("a, step 1", 2), ("a, step 2", 0)]
    assert [(h.layer, h.head) for h in heads] == [*expected, ("a, step 2", 1)]
    for head in heads:
        np.testing.assert_allclose((head.entropy, head.distance), loops(weights[:, head.head]))


def test_limits():
    uniform, sharp = np.full((1, 1, S, S), 1 / S), np.eye(S)[None, None]
    (one,), (other,) = summarize_heads(uniform), summarize_heads(sharp)
    assert one.entropy == pytest.approx(math.log2(S))
    assert (str(other.entropy), other.distance) == ("0.0", 0)
    (earlier,) = summarize_heads(np.eye(S)[None, None, 2:])  # key i of the query after 2 others
    assert earlier.distance == 0


def test_attention_to_another_sequence_has_no_distance():
    heads = summarize_heads({"b/cross_attention": scores(B, N, T, S), "c": scores(B, 1, S, T)})
    assert [head.distance for head in heads] == [None] * (N + 1)
    assert str(heads).splitlines()[0].split() == ["layer", "head", "entropy", "distance"]
    assert str(heads).splitlines()[1].split() == [
        *("b/cross_attention", "0", f"{heads[0].entropy:.2f}", "-")
    ]
    assert not plot_heads({"cross": scores(B, N, T, S)}).axes[1].axison


def test_the_picture_has_a_row_a_layer_and_a_column_a_head():
    by_layer = {"a": scores(B, N, S, S), "b/cross_attention": scores(B, 2, T, S)}
    entropy, distance = (
        np.ma.filled(axes.images[0].get_array(), np.nan) for axes in plot_heads(by_layer).axes[:2]
    )
    heads = summarize_heads(by_layer)
    expected = [head.entropy for head in heads]
    np.testing.assert_allclose(entropy, [expected[:3], [*expected[3:], np.nan]])
    np.testing.assert_allclose(distance, [[h.distance for h in heads[:3]], [np.nan] * 3])
