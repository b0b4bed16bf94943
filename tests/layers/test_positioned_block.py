import numpy as np
import oracles
import pytest

from keras_attn.depth import Stack
from keras_attn.layers import FeedForward, MultiHeadAttention, PositionedBlock, TransformerBlock
from keras_attn.positions import Learned

D, M, T = 6, 3, 5
X, MEMORY = oracles.random(2, T, D), oracles.random(2, M, D, seed=1)


def positioned(index=0, residual="post_norm", **arguments):
    attention = MultiHeadAttention(2, 3, pattern="causal")
    block = TransformerBlock(attention, FeedForward(7), residual=residual, **arguments)
    return PositionedBlock(block, Learned(16))


@pytest.fixture(scope="module")
def layer():
    layer = positioned()
    layer.build((None, None, D))
    oracles.scramble(layer)
    return layer


def table(layer, *places):
    return layer.position.table.numpy()[list(places)]


def test_output_equals_the_formula(layer):
    expected = oracles.block(
        X + table(layer, 0, 1, 2, 3, 4), oracles.block_weights(layer.block), oracles.causal(T, T)
    )
    np.testing.assert_allclose(layer(X), expected, atol=1e-5)
    places = [7, 2, 3, 11, 5]
    output = layer(X, query_positions=places, key_positions=places)
    alone = layer.block(X + table(layer, *places), query_positions=places, key_positions=places)
    np.testing.assert_allclose(output, alone, atol=1e-6)


@pytest.mark.slow
def test_memory_slots_precede_the_input_positions(layer):
    """As a longer sequence, of which the first part was read before."""
    whole = layer(np.concatenate([MEMORY, X], axis=1))
    np.testing.assert_allclose(layer(X, memory=MEMORY), whole[:, M:], atol=1e-5)
    places = np.array([4, 9, 1, 6, 8, 2, 12, 3])
    output = layer(X, memory=MEMORY, query_positions=places[M:], key_positions=places)
    whole = layer(np.concatenate([MEMORY, X], axis=1), query_positions=places, key_positions=places)
    np.testing.assert_allclose(output, whole[:, M:], atol=1e-5)
    mask = np.array([[False] * M, [True] * M])
    masked = layer(X, memory=MEMORY, memory_mask=mask)
    np.testing.assert_allclose(masked[1], layer(X, memory=MEMORY)[1], atol=1e-6)
    assert np.abs(masked[0] - layer(X, memory=MEMORY)[0]).max() > 1e-3


def test_positions_continue_after_cached_keys():
    stack = Stack(lambda index: positioned(index, "pre_norm"), 1)
    stack.build(X.shape)
    oracles.scramble(stack)
    assert stack.norm is not None
    whole, cache = stack(X), stack.initial_cache(2, 9)
    for start, end in ((0, 3), (3, 4), (4, 5)):
        part, cache = stack(X[:, start:end], cache=cache)
        np.testing.assert_allclose(part, whole[:, start:end], atol=1e-5)


@pytest.mark.slow
def test_cross_attention_and_scores():
    layer = positioned(cross_attention=MultiHeadAttention(2, 3))
    context = oracles.random(2, 7, D, seed=2)
    layer.build(X.shape, context.shape)
    oracles.scramble(layer)
    output, scores = layer(X, context, return_attention_scores=True)
    np.testing.assert_allclose(layer(X, context), output, atol=1e-6)
    assert scores["cross_attention"].shape == (2, 2, T, 7)
    expected = layer.block(X + table(layer, 0, 1, 2, 3, 4), context)
    np.testing.assert_allclose(output, expected, atol=1e-6)
    assert layer.cross_attention is layer.block.cross_attention
    may = np.eye(T, 7, dtype=bool)[None]
    _, scores = layer(X, context, context_attention_mask=may, return_attention_scores=True)
    np.testing.assert_allclose(scores["cross_attention"], np.tile(may[:, None], (2, 2, 1, 1)))


def test_invalid_arguments_raise():
    with pytest.raises(ValueError, match="`block` must be a `Block`. Received: block='stack'"):
        PositionedBlock("stack", "sinusoidal")
    with pytest.raises(ValueError, match="Unknown position. Received: position='nowhere'"):
        PositionedBlock(positioned().block, "nowhere")
