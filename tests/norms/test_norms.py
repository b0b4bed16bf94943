"""The norms, compared with loops over positions and with each other."""

import math

import keras
import numpy as np
import oracles
import pytest
from keras import ops

from keras_attn import residuals
from keras_attn.depth import Stack
from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
from keras_attn.norms import DyT, LayerNorm, NoNorm, RMSNorm

B, T, D = 2, 3, 7
X = oracles.random(B, T, D, scale=3)
EACH = pytest.mark.parametrize(
    "make", [LayerNorm, lambda **k: LayerNorm(use_bias=False, **k), RMSNorm, DyT, NoNorm]
)


def built(make, **arguments):
    layer = make(**arguments)
    layer.build(X.shape)
    oracles.scramble(layer)
    return layer


def rms_norm(x, scale, epsilon, offset=0.0):
    """Over the last axis of (..., D)."""
    out = np.zeros(x.shape)
    for index in np.ndindex(x.shape[:-1]):
        row = [float(value) for value in x[index]]
        root = math.sqrt(sum(value * value for value in row) / len(row) + epsilon)
        out[index] = [value / root * (offset + g) for value, g in zip(row, scale, strict=True)]
    return out


def test_layer_norm_is_that_of_keras_but_for_rounding():
    ours, theirs = LayerNorm(1e-3), keras.layers.LayerNormalization(epsilon=1e-3)
    for layer in (ours, theirs):
        layer.build(X.shape)
        oracles.scramble(layer)
    assert [w.name for w in ours.weights] == [w.name for w in theirs.weights]
    np.testing.assert_allclose(ours(X), theirs(X), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "size, policy, tolerance",
    [
        *((1.0, "float32", 2e-6), (1e-4, "mixed_bfloat16", 2**-7), (1e3, "float16", 2**-9)),
        *((1e-4, "mixed_float16", 2**-9), (1e3, "mixed_float16", 2**-9)),
    ],
)
def test_statistics_are_float32_for_small_and_large_inputs(size, policy, tolerance):
    """The mean square of 1,000 would not fit a float16, and that of 0.0001 would be 0."""
    keras.config.set_dtype_policy(policy)
    layer_norm, rms = built(LayerNorm, epsilon=1e-12), built(RMSNorm, epsilon=1e-12)
    x = ops.cast(size * X, layer_norm.compute_dtype)
    exact = oracles.numpy_of(x)
    for layer, expected in (
        (layer_norm, oracles.layer_norm(exact, *oracles.norm_weights(layer_norm), 1e-12)),
        (rms, rms_norm(exact, oracles.numpy_of(rms.scale), 1e-12)),
    ):
        output = layer(x)
        assert keras.backend.standardize_dtype(output.dtype) == layer.compute_dtype
        atol = tolerance * np.abs(expected).max()
        np.testing.assert_allclose(oracles.numpy_of(output), expected, atol=atol)


@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_rms_norm_equals_the_formula(offset):
    layer = built(RMSNorm, epsilon=0.1, offset=offset)
    expected = rms_norm(X, oracles.numpy_of(layer.scale), 0.1, offset)
    np.testing.assert_allclose(layer(X), expected, atol=1e-5)


def test_an_offset_moves_the_start_of_the_scale_and_nothing_else():
    plain, moved = RMSNorm(), RMSNorm(offset=1.0)
    np.testing.assert_array_equal(moved(X), plain(X))
    np.testing.assert_array_equal(moved.scale, np.zeros(D))


def test_dyt_equals_the_formula():
    layer = built(DyT)
    slope, gamma, beta = map(oracles.numpy_of, (layer.slope, layer.gamma, layer.beta))
    np.testing.assert_allclose(layer(X), gamma * np.tanh(slope * X) + beta, atol=1e-6)
    assert DyT(0.25).get_config()["alpha"] == 0.25
    np.testing.assert_allclose(DyT(0.25)(X), np.tanh(0.25 * X), atol=1e-6)


@EACH
def test_the_mask_is_passed_on(make):
    mask = X[..., 0] > 0
    np.testing.assert_array_equal(built(make).compute_mask(X, mask), mask)


def test_each_sublayer_and_the_end_of_a_stack_have_norms_of_their_own():
    def block(index):
        attention = MultiHeadAttention(2, 4)
        residual = residuals.PreNorm(norm=RMSNorm(offset=1.0))
        return TransformerBlock(attention, FeedForward(5), residual=residual)

    stack = Stack(block, 1)
    stack.build((B, T, 8))
    scales = [w for w in stack.weights if w.name == "scale"]
    assert len({id(w) for w in scales}) == len(scales) == 2 + 1


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: LayerNorm(-1e-6), "`epsilon` must be a number of at least 0"),
        (lambda: RMSNorm(epsilon="small"), "`epsilon` must be a number.*small"),
        (lambda: RMSNorm(offset=None), "`offset` must be a number.*None"),
        (lambda: DyT(alpha="0.5"), "`alpha` must be a number.*0.5"),
        (lambda: residuals.PreNorm(norm="batch"), "norm.*Received: norm='batch'.*rms_norm"),
        (lambda: residuals.PreNorm(norm=keras.layers.Dense(3)), "an instance of Norm"),
    ],
)
def test_invalid_arguments_raise(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
