"""Dropout that the backward pass computes again: gradients equal finite differences."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn import depth, layers, patterns

torch = pytest.importorskip("torch", reason="needs the extra `torch`")

D = 6


def blocks(pattern="causal", dropout=0.3, **options):
    attention = layers.MultiHeadAttention(2, 3, pattern=pattern, dropout=dropout, **options)
    feed_forward = layers.FeedForward(7)
    return layers.TransformerBlock(attention, feed_forward, residual="pre_norm", dropout=dropout)


def tiled(pattern):
    return blocks(pattern, implementation="blockwise")


LAYERS = {
    "dense": lambda: blocks(),
    "chunks": lambda: layers.TransformerBlock(
        layers.MultiHeadAttention(2, 3), layers.FeedForward(7, dropout=0.3, chunks=3)
    ),
    "remat": lambda: depth.Stack([blocks(), blocks()], remat=True),
    "dropped blocks": lambda: depth.Stack([blocks(), blocks()], drop=0.5),
    "Reversible": lambda: depth.Reversible([blocks(), blocks()]),
    "Recurrent": lambda: depth.Recurrent(blocks(), 2, remat=True),
    "ACT": lambda: depth.ACT(blocks(), max_steps=3),
    "Causal": lambda: tiled("causal"),
    "Local": lambda: tiled(patterns.Local(3)),
    "Strided": lambda: tiled(patterns.Strided(3)),
    "Fixed": lambda: tiled(patterns.Fixed(3, summary=1)),
    "BlockLocal1D": lambda: tiled(patterns.BlockLocal1D(3, lookback=1)),
    "Random": lambda: tiled(patterns.Random(2, 1, 64, causal=True)),
    # Spans away from the two kinks of the mask, (R + z - x) / R = 0 and 1 at whole distances x.
    "AdaptiveSpan": lambda: tiled(patterns.AdaptiveSpan(5, ramp=3, initial_span=0.43)),
}


def set_seeds(layer):
    torch.manual_seed(3)  # of Keras's dropout without a seed
    for variable in layer.variables:
        if variable.path.endswith("seed_generator_state"):
            variable.assign([3, 0])


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_with_dropout_equal_finite_differences(name):
    layer = LAYERS[name]()
    x = keras.random.normal((2, 11, D), seed=1)
    layer(x)
    for index, weight in enumerate(layer.trainable_weights):
        if "span" not in weight.path:
            noise = np.random.default_rng(index).normal(0.0, 0.4, weight.shape)
            weight.assign(weight + noise.astype("float32"))
    mix = keras.random.normal((2, 11, D), seed=2)

    def loss():
        set_seeds(layer)
        return ops.sum(layer(x, training=True) * mix)

    weights = [weight.value for weight in layer.trainable_weights]
    gradients = torch.autograd.grad(loss(), weights)
    directions = [torch.sign(gradient) for gradient in gradients]
    expected = sum(float((g * d).sum()) for g, d in zip(gradients, directions, strict=True))
    step, values = 1e-4, []
    with torch.no_grad():
        for sign in (1, -1):
            for weight, direction in zip(weights, directions, strict=True):
                weight += sign * step * direction
            values.append(float(loss()))
            for weight, direction in zip(weights, directions, strict=True):
                weight -= sign * step * direction
    assert abs(expected) > 1
    np.testing.assert_allclose((values[0] - values[1]) / (2 * step), expected, rtol=0.02)


def test_dropout_follows_the_seed_of_its_generator():
    block = blocks()
    x = keras.random.normal((2, 11, D), seed=1)
    block(x)
    outputs = []
    for seed in (0, 1):
        set_seeds(block)
        torch.manual_seed(seed)
        outputs.append(ops.convert_to_numpy(block.attention(x, x, training=True)))
    np.testing.assert_array_equal(*outputs)
