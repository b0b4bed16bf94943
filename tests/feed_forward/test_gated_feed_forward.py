"""The gated feed-forward network, compared with loops and in limiting cases."""

import math

import numpy as np
import oracles
import pytest
from keras import ops

from keras_attn.layers import GatedFeedForward

B, T, D, F = 2, 5, 7, 11
X = oracles.random(B, T, D)


def built(width=F, **arguments):
    layer = GatedFeedForward(width, **arguments)
    layer.build(X.shape)
    oracles.scramble(layer)
    return layer


def silu(value):
    return value / (1 + math.exp(-value))


@pytest.mark.parametrize(
    "activation, function, use_bias", [("silu", silu, False), ("gelu", oracles.gelu, True)]
)
def test_output_equals_the_formula(activation, function, use_bias):
    layer = built(activation=activation, use_bias=use_bias)
    weights = [oracles.numpy_of(w) for w in layer.weights]
    if not use_bias:
        weights = [part for kernel in weights for part in (kernel, np.zeros(kernel.shape[1]))]
    gate, gate_bias, up, up_bias, down, down_bias = weights
    expected = np.zeros(X.shape)
    for index in np.ndindex(B, T):
        opened = [function(value) for value in X[index] @ gate + gate_bias]
        expected[index] = (np.array(opened) * (X[index] @ up + up_bias)) @ down + down_bias
    np.testing.assert_allclose(layer(X), expected, atol=1e-5)


def test_chunks_equal_one_pass():
    np.testing.assert_allclose(built(chunks=3)(X), built()(X), atol=1e-5)


def test_the_initial_kernels_have_the_spread_of_their_own_shape():
    """A kernel of both halves, (D, 2 F), would be drawn narrower."""
    layer = GatedFeedForward(600, kernel_initializer="glorot_uniform")
    layer.build((None, None, 200))
    for kernel in (layer.gate.kernel, layer.intermediate.kernel):
        limit = math.sqrt(6 / (200 + 600))
        assert 0.98 * limit < ops.max(ops.abs(kernel)) <= limit
    assert np.any(layer.gate.kernel.numpy() != layer.intermediate.kernel.numpy())
