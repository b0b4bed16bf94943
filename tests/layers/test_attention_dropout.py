"""Dropout of the attention weights: its scale and its rate, under every plan."""

import numpy as np
import oracles
import pytest
from index_sets import SMALL_TILES
from marks import slow

from keras_attn.layers import MultiHeadAttention
from keras_attn.patterns import Causal, PerHead, Prefix, Strided

B, T = 3, 40


def dropped_weights(pattern, rate, implementation, heads=1):
    """The weights (B, T, N T) after dropout, as the output for values that are unit vectors."""
    layer = MultiHeadAttention(
        *(heads, 3, T),
        pattern=pattern,
        use_bias=False,
        dropout=rate,
        output_shape=heads * T,
        implementation=implementation,
        seed=1,
    )
    query = oracles.random(B, T, 5)
    values = np.broadcast_to(np.eye(T, dtype="float32"), (B, T, T))
    layer.build(query.shape, values.shape)
    layer.tile_sizes = SMALL_TILES
    layer.query_kernel.assign(np.zeros((5, heads, 3)))  # a query likes all keys alike
    layer.value_kernel.assign(np.repeat(np.eye(T)[:, None], heads, axis=1))
    layer.output_kernel.assign(np.eye(heads * T).reshape(heads, T, heads * T))
    return np.asarray(layer(query, values, training=True))


@pytest.mark.parametrize(
    "pattern, implementation",
    [slow(Causal(), "dense"), (Causal(), "blockwise"), (Strided(6), "blockwise")],
    ids=repr,
)
def test_dropout_is_applied_once_to_each_weight(pattern, implementation):
    """Twice, it would drop 1 - (1 - rate)^2 of the weights and scale the others by its square."""
    rate = 0.3
    places = np.arange(T)
    allowed = np.asarray(pattern.allowed(places, places))
    weights = np.broadcast_to(allowed / allowed.sum(axis=1, keepdims=True), (B, T, T))
    after_dropout = dropped_weights(pattern, rate, implementation)
    kept = after_dropout != 0
    np.testing.assert_allclose(after_dropout[kept], weights[kept] / (1 - rate), rtol=1e-5)
    count = B * allowed.sum()
    dropped = 1 - kept.sum() / count
    assert abs(dropped - rate) < 4 * np.sqrt(rate * (1 - rate) / count)


@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
def test_no_two_rows_tiles_or_heads_drop_the_same_weights(implementation):
    """The patterns allow all pairs: their tiles have one shape, and random numbers for it."""
    pattern = PerHead([Prefix(T), Prefix(T + 1)])
    kept = dropped_weights(pattern, 0.3, implementation, heads=2).reshape(-1, T) != 0
    assert len(np.unique(kept, axis=0)) == len(kept)
