"""Patterns of first keys without any, and the random draw of BigBird's blocks."""

import keras
import numpy as np
import oracles
import pytest

from keras_attn.layers import MultiHeadAttention
from keras_attn.patterns import Dense, Global, Local, PerHead, Prefix, Random

B, T, N, H, D = 2, 23, 2, 3, 7
X = oracles.random(B, T, D)


def output(pattern, implementation="blockwise", **masks):
    layer = MultiHeadAttention(N, H, pattern=pattern, implementation=implementation)
    layer.build(X.shape, X.shape)
    oracles.scramble(layer)
    return np.asarray(layer(X, X, **masks))


def test_without_first_keys_nothing_is_attended():
    nothing = output(Dense(), value_mask=np.zeros((B, T), bool))
    for pattern in (Global(0), Prefix(0)):
        np.testing.assert_array_equal(output(pattern), nothing)


@pytest.mark.parametrize("causal", [False, True])
def test_drawn_blocks_are_different_and_no_neighbours(causal):
    pattern = Random(4, 3, 50, causal=causal)
    table = pattern.blocks()
    assert table.shape == (13, 3) and pattern.blocks() is table
    for block, row in enumerate(table):
        drawn = row[row >= 0]
        assert len(set(drawn)) == len(drawn)
        assert not {0, block - 1, block, block + 1} & set(drawn)
        assert np.all(drawn < (block if causal else 13))
        left = (
            max(block - 2, 0) if causal else 13 - len({0, block, block - 1, block + 1} - {-1, 13})
        )
        assert len(drawn) == min(3, left)


def test_the_draw_depends_on_the_seed_and_is_fair():
    counts = np.zeros(20)
    tables = [Random(1, 2, 20, seed=seed).blocks() for seed in range(400)]
    assert any(np.any(tables[0] != table) for table in tables)
    for table in tables:
        counts += np.bincount(table[10], minlength=20)
    assert np.all(counts[[0, 9, 10, 11]] == 0)
    others = np.delete(counts, [0, 9, 10, 11])
    np.testing.assert_allclose(others, 50, atol=5 * 50**0.5)


def test_a_saved_pattern_draws_the_same_blocks():
    """The numbers are those of all versions of NumPy: a file may be read by another one."""
    pattern = Random(8, 2, 64, seed=5)
    config = keras.saving.serialize_keras_object(pattern)
    again = keras.saving.deserialize_keras_object(config)
    np.testing.assert_array_equal(again.blocks(), pattern.blocks())
    assert pattern.blocks().tolist() == DRAWN


DRAWN = [[4, 7], [4, 7], [5, 6], [1, 6], [2, 6], [1, 3], [2, 4], [1, 4]]


def test_a_sequence_longer_than_the_table_is_refused():
    """Also where the pattern is a part of another one."""
    drawn = Random(4, 2, 22)
    for pattern in (drawn, Local(3) | drawn, drawn & Local(3), PerHead([drawn] * 2)):
        with pytest.raises(ValueError, match="`max_length`.*max_length=22, 23 positions"):
            output(pattern)
    with pytest.raises(ValueError, match="`max_length`.*max_length=22, 23 positions"):
        output(drawn, "dense")
