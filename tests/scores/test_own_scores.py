"""Scores and biases of a user's own."""

import numpy as np
import oracles
import pytest
from distance_scores import B, H, N, S, T
from keras import ops

from keras_attn.layers import MultiHeadAttention
from keras_attn.patterns import Strided
from keras_attn.scores import DotProduct, Score, T5Bias


def test_a_subclass_of_a_bias_has_its_own_rule_everywhere():
    """A subclass does not inherit the method that it leaves out."""

    class Near(T5Bias):
        def of_distances(self, distances):
            return super().of_distances(ops.minimum(distances, 2))

    class Flat(T5Bias):
        def of_pairs(self, i, j):
            return ops.zeros((1, N, i.shape[-2], j.shape[-1]))

    query, key = oracles.random(B, N, T, H), oracles.random(B, N, S, H)
    for kind in (Near, Flat):
        layer = DotProduct() + kind(8, 20)
        layer.build_for((B, N, T, H), (B, N, S, H))
        oracles.scramble(layer, scale=0.5)
        i, j = np.arange(S - T, S, dtype="int32"), np.arange(S, dtype="int32")
        by_distances = layer(query, key)
        by_pairs = layer(query, key, query_positions=i, key_positions=j)
        np.testing.assert_allclose(by_distances, by_pairs, atol=1e-6)
        (bias,) = layer.terms[1:]
        assert (bias.is_relative, bias.is_of_distances) == (kind is Near, kind is Near)
    np.testing.assert_allclose(by_pairs, DotProduct()(query, key), atol=1e-6)


@pytest.mark.slow
def test_a_score_of_ones_own_reads_positions_of_any_form():
    """Positions are a range in the matrix of scores, and tensors in tiles and packed rows."""

    class Nearest(Score):
        uses_positions = True

        def __call__(self, query, key, query_positions=None, key_positions=None):
            i, j = map(self.positions_by_head, (query_positions, key_positions))
            far = ops.cast(ops.abs(i[..., :, None] - j[..., None, :]), "float32")
            return DotProduct()(query, key) - far

    x, ids = oracles.random(1, 7, 6), np.array([[1, 1, 1, 2, 2, 2, 2]])
    options = {"score": Nearest(), "pattern": Strided(3)}
    layer = MultiHeadAttention(2, H, **options, implementation="dense")
    output = layer(x, x, segment_ids=ids)
    parts = [layer(part, part) for part in (x[:, :3], x[:, 3:])]
    np.testing.assert_allclose(output, np.concatenate(parts, axis=1), atol=1e-6)
    tiles = MultiHeadAttention(2, H, **options, implementation="blockwise")
    tiles.build(x.shape, x.shape)
    tiles.set_weights(layer.get_weights())
    np.testing.assert_allclose(tiles(x, x), layer(x, x), atol=1e-6)
