"""Claims of the Transformer's paper about its own model (Vaswani et al., 2017), measured."""

import math

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from counted_products import counted

from keras_attn import models
from keras_attn.attention.softmax import attend_logits
from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
from keras_attn.models.paper_sizes import PRESETS
from keras_attn.ops.sinusoids import sinusoids
from keras_attn.positions import Sinusoidal
from keras_attn.scores import DotProduct


@pytest.mark.parametrize("size", [4, 64])
@pytest.mark.parametrize("scaled", [False, True])
def test_variance_of_a_score(scaled, size):
    """Footnote 4: q.k of unit-variance components has mean 0 and variance d_k; scaled, 1."""
    count = 10_000
    query, key = (oracles.random(count, 1, 1, size, seed=seed) for seed in (0, 1))
    logits = np.asarray(DotProduct(scaled)(query, key)).ravel()
    variance = 1 if scaled else size
    assert abs(logits.mean()) < 5 * math.sqrt(variance / count)
    # The fourth moment of such a sum is (3 + 6 / d_k) variance^2.
    assert abs(logits.var() / variance - 1) < 5 * math.sqrt((2 + 6 / size) / count)


def gradient_through_the_softmax(size, scaled, keys=8, count=500):
    """Median norm of the gradient that reaches the logits of a row."""
    query, key = oracles.random(count, 1, 1, size), oracles.random(count, 1, keys, size, seed=1)
    value = oracles.random(count, 1, keys, 1, seed=2)
    logits = DotProduct(scaled)(query, key)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        output, _ = attend_logits(logits, value)
        loss = tf.reduce_sum(output)
    return np.median(np.linalg.norm(tape.gradient(loss, logits), axis=-1))


def test_without_scaling_a_large_head_stops_the_gradient():
    """Section 3.2.1: at large d_k the softmax has extremely small gradients; scaling mends it."""
    small = gradient_through_the_softmax(4, scaled=True)
    assert gradient_through_the_softmax(1024, scaled=True) > small / 2
    assert gradient_through_the_softmax(1024, scaled=False) < small / 100


def rotation(offset, dim):
    """The (D, D) matrix that turns each pair (sin, cos) by the angle of `offset`."""
    matrix = np.zeros((dim, dim))
    for pair in range(dim // 2):
        angle = offset / 10000 ** (2 * pair / dim)
        c, s = math.cos(angle), math.sin(angle)
        matrix[2 * pair : 2 * pair + 2, 2 * pair : 2 * pair + 2] = [[c, s], [-s, c]]
    return matrix


@pytest.mark.parametrize("offset", [1, 7, 100, -3])
def test_shifted_positions_are_rotated_vectors(offset):
    """Section 3.5: PE[p + k] is a linear function of PE[p], the same for every p."""
    positions = np.arange(3, 300)
    table = np.asarray(sinusoids(positions, 16), "float64")
    shifted = np.asarray(sinusoids(positions + offset, 16))
    matrix = rotation(offset, 16)
    np.testing.assert_allclose(table @ matrix.T, shifted, atol=1e-4)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(16), atol=1e-12)


def test_wavelengths_grow_geometrically_from_two_pi_to_ten_thousand_times_that():
    """Section 3.5. The period of a pair is where its sine is back at 0 and its cosine at 1."""
    dim = 8
    for pair in range(dim // 2):
        period = 2 * math.pi * 10000 ** (2 * pair / dim)
        row = np.asarray(sinusoids(np.float32(period), dim))[2 * pair : 2 * pair + 2]
        np.testing.assert_allclose(row, [0, 1], atol=1e-3)


def test_without_positions_an_encoder_commutes_with_permutations():
    """Section 3.5: with neither recurrence nor convolution, order must be put in."""
    block = TransformerBlock(MultiHeadAttention(2, 4), FeedForward(11))
    block.build((None, None, 6))
    oracles.scramble(block)
    x, order, position = oracles.random(2, 5, 6), [3, 0, 4, 1, 2], Sinusoidal()
    np.testing.assert_allclose(block(x[:, order]), np.asarray(block(x))[:, order], atol=1e-5)
    placed = np.asarray(block(position(x)))
    assert np.abs(np.asarray(block(position(x[:, order]))) - placed[:, order]).max() > 0.01


@pytest.mark.parametrize("heads", [1, 8])
def test_head_count_does_not_change_the_parameters(heads):
    """Section 3.2.2: h heads of size d/h cost what one head of size d costs."""
    length, dim = 5, 24
    layer = MultiHeadAttention(heads, dim // heads)
    layer.build((None, None, dim))
    assert layer.count_params() == 4 * (dim**2 + dim)
    # Four projections, the scores, and the weighted sum of the values.
    x = oracles.random(1, length, dim)
    with counted() as products:
        layer(x, x)
    assert sum(products) == 4 * length * dim**2 + 2 * length**2 * dim


def test_transformer_base_has_the_papers_sizes():
    """Section 3.1 and 3.3: N = 6, d_model = 512, h = 8, d_k = d_v = 64, d_ff = 2048."""
    _, sizes = PRESETS["transformer_base"]
    assert sizes["num_layers"] == 6
    with keras.StatelessScope(initialize_variables=False):
        model = models.create("transformer_base", num_layers=1)
    keras.backend.clear_session()  # Keras would else make its numbers at the end of another scope.
    for (block,) in (model.encoder.blocks, model.decoder.blocks):
        assert (block.attention.num_heads, block.attention.key_dim) == (8, 64)
        assert block.attention.value_dim == 64
        assert block.feed_forward.intermediate_dim == 2048
    assert model.embedding.hidden_dim == 512 and model.embedding.scaled
