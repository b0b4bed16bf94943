"""Residuals with norms of the output and with factors, compared with formulas and with others."""

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn import residuals
from keras_attn.depth import Stack
from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
from keras_attn.norms import LayerNorm
from keras_attn.residuals import DeepNorm, LayerScale, OutputNorm, ReZero, SandwichNorm

B, T, D = 2, 5, 7
X, Y = oracles.random(B, T, D, scale=3), oracles.random(B, T, D, seed=1)
KINDS = {
    "deep_norm": lambda **k: DeepNorm(5, **k),
    "layer_scale": LayerScale,
    "output_norm": OutputNorm,
    "re_zero": ReZero,
    "sandwich_norm": SandwichNorm,
}
EACH = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


def built(make, **arguments):
    layer = make(**arguments)
    layer.build(X.shape)
    oracles.scramble(layer)
    return layer


def norm(layer, x):
    return oracles.layer_norm(x, *oracles.norm_weights(layer), layer.epsilon)


def test_outputs_equal_the_formulas():
    layer = built(OutputNorm, norm=LayerNorm(0.1))
    np.testing.assert_array_equal(layer.before(X), X)
    np.testing.assert_allclose(layer.after(X, Y), X + norm(layer.norm, Y), atol=1e-5)
    layer = built(SandwichNorm, norm=LayerNorm(0.1))
    np.testing.assert_allclose(layer.before(X), norm(layer.norm, X), atol=1e-5)
    np.testing.assert_allclose(layer.after(X, Y), X + norm(layer.output_norm, Y), atol=1e-5)
    assert layer.norm.gamma is not layer.output_norm.gamma
    layer = built(ReZero)
    np.testing.assert_array_equal(layer.before(X), X)
    np.testing.assert_allclose(layer.after(X, Y), X + float(layer.factor) * Y, atol=1e-5)
    layer = built(LayerScale)
    np.testing.assert_allclose(layer.before(X), norm(layer.norm, X), atol=1e-5)
    factor = oracles.numpy_of(layer.factor)
    np.testing.assert_allclose(layer.after(X, Y), X + factor * Y, atol=1e-5)
    layer = built(DeepNorm, num_layers=8)
    np.testing.assert_array_equal(layer.before(X), X)
    np.testing.assert_allclose(layer.after(X, Y), norm(layer.norm, 2 * X + Y), atol=1e-5)


def test_weight_decay_can_leave_out_the_factor():
    layer = built(ReZero, norm=LayerNorm())
    before = {w.name: oracles.numpy_of(w) for w in layer.trainable_weights}
    optimizer = keras.optimizers.SGD(1.0, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["factor"])
    weights = layer.trainable_weights
    optimizer.apply([np.zeros(w.shape, "float32") for w in weights], weights)
    after = {w.name: oracles.numpy_of(w) for w in layer.trainable_weights}
    assert {name for name in before if np.all(after[name] == before[name])} == {"factor"}


def test_a_stack_of_re_zero_blocks_starts_as_the_identity_and_learns_its_factors_first():
    def block(index):
        return TransformerBlock(MultiHeadAttention(2, 3), FeedForward(5), residual="re_zero")

    stack = Stack(block, 2)
    with tf.GradientTape() as tape:
        output = stack(X)
        loss = tf.reduce_sum(tf.square(output - Y))
    np.testing.assert_array_equal(output, X)
    gradients = tape.gradient(loss, [w.value for w in stack.weights])
    for weight, gradient in zip(stack.weights, gradients, strict=True):
        assert np.any(gradient != 0) == (weight.name == "factor"), weight.path


@EACH
def test_half_precision(make):
    reference, layer = built(make), built(make, dtype="mixed_float16")
    output = layer.after(*(keras.ops.cast(x, "float16") for x in (X, Y)))
    assert keras.backend.standardize_dtype(output.dtype) == "float16"
    expected = oracles.numpy_of(reference.after(X, Y))
    tolerance = 2.0**-8 * np.abs(expected).max()
    np.testing.assert_allclose(oracles.numpy_of(output), expected, atol=tolerance)


@EACH
def test_a_stack_ends_with_a_norm_where_the_sum_has_none(make):
    def block(index):
        return TransformerBlock(MultiHeadAttention(2, 3), FeedForward(5), residual=make())

    stack = Stack(block, 1)
    stack.build(X.shape)
    assert (stack.norm is not None) == (make in (LayerScale, OutputNorm, SandwichNorm))


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: LayerScale("small"), "`initial` must be a number.*small"),
        (lambda: DeepNorm(0), "`num_layers`.*num_layers=0"),
        (lambda: DeepNorm(2, scale="large"), "`scale` must be a number.*large"),
        (lambda: residuals.get("deep_norm"), "Received: residual='deep_norm'"),
    ],
)
def test_invalid_arguments_raise(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
