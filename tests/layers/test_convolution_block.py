"""`ConvolutionBlock` and `EmbeddingProjection` against their formulas."""

import math

import numpy as np
import oracles
import pytest

from keras_attn.depth import Stack
from keras_attn.layers import (
    ConvolutionBlock,
    EmbeddingProjection,
    FeedForward,
    MultiHeadAttention,
    TransformerBlock,
)
from keras_attn.models.assembly import check_causal, check_packable
from keras_attn.norms import LayerNorm

B, T, N, H, D, F = 2, 7, 3, 5, 6, 11
X = oracles.random(B, T, D)
REAL = np.arange(T)[None] < np.array([[7], [4]])


def block(**arguments):
    return ConvolutionBlock(MultiHeadAttention(N, H), FeedForward(F), **arguments)


def convolve(x, kernel, bias, groups):
    """Return the sum over taps, position by position, of products with each group's kernel."""
    taps, by_group, _ = kernel.shape
    out = np.zeros(x.shape) + bias
    for b, t, tap in np.ndindex(len(x), x.shape[1], taps):
        if 0 <= (at := t + tap - taps // 2) < x.shape[1]:
            for g in range(groups):
                part = slice(g * by_group, (g + 1) * by_group)
                out[b, t, part] += x[b, at, part].astype("float64") @ kernel[tap, :, part]
    return out


@pytest.mark.parametrize("taps, groups", [(3, 1), (5, 2)])
def test_a_convolution_of_real_tokens_is_added_to_the_block_and_normalised(taps, groups):
    layer = block(kernel_size=taps, groups=groups, norm=LayerNorm(1e-3))
    layer.build(X.shape)
    oracles.scramble(layer)
    plain = TransformerBlock(layer.attention, layer.feed_forward, residual=layer.residual)
    plain.attention_residual, plain.feed_forward_residual = (
        layer.attention_residual,
        layer.feed_forward_residual,
    )
    kernel, bias = (oracles.numpy_of(w) for w in layer.convolution.weights)
    near = convolve(np.where(REAL[..., None], X, 0), kernel, bias, groups)
    total = oracles.numpy_of(plain(X, padding_mask=REAL)) + np.vectorize(math.tanh)(near)
    expected = oracles.layer_norm(total, *oracles.norm_weights(layer.norm), 1e-3)
    np.testing.assert_allclose(layer(X, padding_mask=REAL), expected, atol=1e-5)


def test_calls_in_which_a_position_must_not_see_the_next_are_refused():
    layer = block()
    with pytest.raises(ValueError, match="`segment_ids` does not fit a `ConvolutionBlock`"):
        layer(X, segment_ids=np.ones((B, T), "int32"))
    for check in (check_causal, check_packable):
        with pytest.raises(ValueError, match="layers (that|that do not) mix positions"):
            check(Stack([layer]))


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ({"kernel_size": 4}, "an odd number.*kernel_size=4"),
        ({"groups": 4}, "a divisor of the 6 features.*groups=4"),
        ({"cross_attention": MultiHeadAttention(2, 3)}, "`cross_attention`.*left out"),
    ],
)
def test_invalid_arguments_raise(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        block(**arguments).build(X.shape)


def test_embeddings_are_normalised_and_projected():
    layer = EmbeddingProjection(11, LayerNorm(1e-3))
    layer.build(X.shape)
    oracles.scramble(layer)
    normal = oracles.layer_norm(X, *oracles.norm_weights(layer.norm), 1e-3)
    kernel, bias = map(oracles.numpy_of, layer.dense.weights)
    np.testing.assert_allclose(layer(X), normal @ kernel + bias, atol=1e-5)
    with pytest.raises(ValueError, match="`hidden_dim`.*=0"):
        EmbeddingProjection(0)
