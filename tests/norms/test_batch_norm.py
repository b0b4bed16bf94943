"""`BatchNorm` against Keras's layer; masks, frozen layers, recomputation, and who refuses it."""

import keras
import numpy as np
import oracles
import pytest

from keras_attn import depth, layers, residuals
from keras_attn.norms import BatchNorm

B, T, D = 3, 5, 7
X = oracles.random(B, T, D) * 2 + 1
MASK = np.arange(T) < np.array([[5], [2], [0]])


def block(residual="post_norm", **arguments):
    residual = {"post_norm": residuals.PostNorm, "pre_norm": residuals.PreNorm}[residual]
    attention = layers.MultiHeadAttention(2, 3)
    return layers.TransformerBlock(
        attention, layers.FeedForward(11), residual=residual(norm=BatchNorm()), **arguments
    )


@pytest.mark.parametrize("momentum", [0.9, 0.0])
def test_one_step_equals_that_of_keras(momentum):
    ours, theirs = (
        BatchNorm(momentum, epsilon=0.01),
        keras.layers.BatchNormalization(momentum=momentum, epsilon=0.01),
    )
    ours.build(X.shape)
    theirs.build(X.shape)
    oracles.scramble(ours)
    ours.variance.assign(np.abs(ours.variance) + 0.1)
    theirs.set_weights(ours.get_weights())
    np.testing.assert_allclose(ours(X), theirs(X), atol=1e-5)
    np.testing.assert_allclose(ours(X, training=True), theirs(X, training=True), atol=1e-5)
    np.testing.assert_allclose(ours.mean, theirs.moving_mean, atol=1e-5)
    # Keras keeps the variance divided by the number n, PyTorch and this layer by n - 1.
    old, new = ours.get_weights()[3], theirs.get_weights()[3]
    n = B * T
    biased = np.var(X, axis=(0, 1))
    np.testing.assert_allclose(old - new, (1 - momentum) * biased / (n - 1), atol=1e-5)


def test_masked_positions_have_no_influence():
    noise = np.where(MASK[..., None], X, 100 * oracles.random(B, T, D, seed=3))
    outputs, averages = [], []
    for x in (X, noise):
        layer = BatchNorm()
        outputs.append(np.asarray(layer(x, mask=MASK, training=True))[MASK])
        averages.append(layer.get_weights())
    seen = X[MASK]
    expected = (seen - seen.mean(0)) / np.sqrt(seen.var(0) + 1e-5)
    np.testing.assert_allclose(outputs[0], expected, atol=1e-5)
    np.testing.assert_array_equal(*outputs)
    np.testing.assert_allclose(averages[0][2], 0.1 * seen.mean(0), atol=1e-6)
    for mine, other in zip(*averages, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_a_batch_without_positions_moves_no_average():
    layer = BatchNorm()
    output = layer(X, mask=np.zeros((B, T), bool), training=True)
    assert np.isfinite(output).all()
    for weight, start in zip(layer.get_weights()[2:], (0.0, 1.0), strict=True):
        np.testing.assert_array_equal(weight, np.full(D, start))


def test_a_frozen_layer_keeps_its_averages_and_uses_them():
    layer = BatchNorm()
    layer(X, training=True)
    layer.trainable = False
    before = layer.get_weights()
    np.testing.assert_array_equal(layer(X, training=True), layer(X))
    for old, new in zip(before, layer.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("residual", ["post_norm", "pre_norm"])
def test_blocks_give_their_padding_to_the_norm(residual):
    noise = np.where(MASK[..., None], X, oracles.random(B, T, D, seed=3))
    noise[2] = X[2]  # a row without positions changes nothing either
    noise[2, 1] += 5
    weights = None
    for x in (X, noise):
        layer = block(residual)
        layer.build(x.shape)
        weights = layer.get_weights() if weights is None else weights
        layer.set_weights(weights)
        output = layer(x, padding_mask=MASK, training=True)
        found = [np.asarray(output)[MASK], *layer.get_weights()]
        expected = found if x is X else expected  # noqa: F821
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, other, atol=1e-5)


def test_recomputation_moves_the_averages_once():
    tf = pytest.importorskip("tensorflow")
    stacks = [depth.Stack(lambda index: block("pre_norm"), 1, remat=r) for r in (False, True)]
    for stack in stacks:
        stack.build(X.shape)
    stacks[1].set_weights(stacks[0].get_weights())
    gradients = []
    for stack in stacks:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(stack(X, padding_mask=MASK, training=True) ** 2)
        gradients.append(tape.gradient(loss, [v.value for v in stack.trainable_variables]))
    for mine, other in zip(*(stack.get_weights() for stack in stacks), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-5)
    for mine, other in zip(*gradients, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-3)
    assert not np.allclose(stacks[1].blocks[0].residual.norm.mean, 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: depth.Recurrent(block("pre_norm"), 2),
        lambda: depth.ACT(block("pre_norm"), 3),
        lambda: depth.Reversible([block("pre_norm")]),
    ],
    ids=["Recurrent", "ACT", "Reversible"],
)
def test_depths_that_repeat_or_undo_a_block_refuse_it(make, request):
    name = request.node.callspec.id
    with pytest.raises(ValueError, match=f"`block` of a `{name}` must not have a `BatchNorm`"):
        make()


def test_statistics_are_float32_under_mixed_float16():
    layer = BatchNorm(dtype="mixed_float16")
    output = layer(X * 1000, training=True)  # squares would overflow
    assert keras.backend.standardize_dtype(output.dtype) == "float16"
    expected = (X - X.mean((0, 1))) / X.std((0, 1))
    np.testing.assert_allclose(output, expected, atol=0.01)


def test_wrong_arguments_raise():
    with pytest.raises(ValueError, match="`momentum` must be at most 1.*2"):
        BatchNorm(2)
