"""Differential attention beside tests/layers/test_combinations.py, which has its formula."""

import numpy as np
import oracles
import pytest

from keras_attn.attention.inputs import TileSizes
from keras_attn.layers import DifferentialAttention, MultiHeadAttention

B, T, N, H, D = 2, 11, 4, 3, 5
X = oracles.random(B, T, D)
REAL = np.stack([np.arange(T) < T, np.arange(T) < 0])  # a row of padding only


def built(layer_index=2, **arguments):
    arguments = {"pattern": "causal", **arguments}
    layer = DifferentialAttention(N, H, layer_index, **arguments)
    layer.tile_sizes = TileSizes(chunk_scores=1, block_scores=100, least_group=4)
    layer.build(X.shape, X.shape)
    for i, weight in enumerate(layer.weights):
        weight.assign(oracles.random(*weight.shape, seed=i, scale=0.7))
    return layer


def test_weights_have_the_shapes_of_the_same_number_of_heads():
    """A pair shares a head of values of twice the size."""
    ours, plain = built(), MultiHeadAttention(N, H)
    plain.build(X.shape, X.shape)
    shapes = [tuple(w.shape) for w in ours.weights]
    assert shapes[:4] == [tuple(w.shape) for w in plain.weights[:4]]
    assert shapes[4:8] == [(D, N // 2, 2 * H), (N // 2, 2 * H), (N // 2, 2 * H, D), (D,)]
    assert shapes[8:] == [(H,)] * 4
    assert sum(map(np.prod, shapes[:8])) == sum(np.prod(w.shape) for w in plain.weights)


def test_a_query_without_a_key_gets_the_output_bias_only():
    layer = built()
    output = layer(X, X, value_mask=REAL)
    np.testing.assert_array_equal(output[1], np.tile(layer.output_bias, (T, 1)))


def test_context_in_a_cache():
    layer, context = built(pattern="dense"), oracles.random(B, 7, D)
    cached, _ = layer(X, cache=layer.context_cache(context))
    np.testing.assert_allclose(cached, layer(X, context), atol=1e-5)


def test_returned_scores_are_both_maps():
    output, scores = built()(X, X, return_attention_scores=True)
    assert scores.shape == (B, N, T, T)
    np.testing.assert_allclose(np.sum(scores, axis=-1), 1, atol=1e-6)
    np.testing.assert_array_equal(output, built()(X, X))


def test_mixed_bfloat16():
    layer = built(dtype="mixed_bfloat16")
    difference = oracles.numpy_of(layer(X, X)) - oracles.numpy_of(built()(X, X))
    assert np.abs(difference).mean() < 0.02


@pytest.mark.parametrize(
    "arguments, options, sentence",
    [
        ((3, 4, 0), {}, "`num_heads` must be an even number.*num_heads=3"),
        ((4, 4, -1), {}, "`layer_index`.*layer_index=-1"),
        ((2, 4, 0), {"num_key_value_heads": 1}, "`num_key_value_heads` must be an even"),
    ],
)
def test_invalid_arguments_raise(arguments, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        DifferentialAttention(*arguments, **options)
