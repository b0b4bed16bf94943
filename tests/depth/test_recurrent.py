import numpy as np
import oracles
import pytest
from keras import ops

from keras_attn.depth import Recurrent, Stack
from keras_attn.layers import FeedForward, MultiHeadAttention, TokenEmbedding, TransformerBlock
from keras_attn.residuals import PreNorm

B, T, S, N, H, D, F, STEPS = 2, 5, 7, 3, 2, 11, 13, 3
X, CONTEXT = oracles.random(B, T, D), oracles.random(B, S, D)
REAL = np.arange(T)[None] < np.array([[5], [3]])
CONTEXT_REAL = np.arange(S)[None] < np.array([[4], [7]])


def block(index=0, residual="post_norm", cross=False, score="scaled_dot"):
    return TransformerBlock(
        MultiHeadAttention(N, H, score=score, pattern="causal"),
        FeedForward(F),
        cross_attention=MultiHeadAttention(N, H) if cross else None,
        residual=residual,
    )


def built(position=None, steps=STEPS, cross=False, **arguments):
    layer = Recurrent(block(cross=cross, **arguments), steps, position)
    layer.build(X.shape, *([CONTEXT.shape] if cross else []))
    oracles.scramble(layer)
    return layer


def test_equals_a_stack_with_shared_weights():
    layer = built(residual="pre_norm", cross=True)
    stack = Stack(lambda index: block(index, "pre_norm", cross=True), STEPS)
    stack.build(X.shape, CONTEXT.shape)
    for one in stack.blocks:
        one.set_weights(layer.block.get_weights())
    stack.norm.set_weights(layer.norm.get_weights())
    masks = {"padding_mask": REAL, "context_padding_mask": CONTEXT_REAL}
    output, scores = layer(X, CONTEXT, **masks, return_attention_scores=True)
    expected, expected_scores = stack(X, CONTEXT, **masks, return_attention_scores=True)
    np.testing.assert_allclose(output, expected, atol=1e-5)
    assert len(scores) == STEPS
    for one, other in zip(scores, expected_scores, strict=True):
        np.testing.assert_allclose(one["attention"], other["attention"], atol=1e-5)


def test_universal_transformer_steps_equal_the_formula():
    """H^t = LN(A + FFN(A)), A = LN(X + MHSA(X)), X = H^{t-1} + P^t."""
    layer = built("timestep")
    expected = np.asarray(X, "float64")
    for t in range(1, STEPS + 1):
        for i in range(1, T + 1):
            expected[:, i - 1] += oracles.sinusoids(i, D) + oracles.sinusoids(t, D)
        expected = oracles.block(
            expected, oracles.block_weights(layer.block), REAL[:, None, None] & oracles.causal(T, T)
        )
    np.testing.assert_allclose(layer(X, padding_mask=REAL), expected, atol=5e-5)


def test_weights_are_those_of_one_block():
    alone = block()
    alone.build(X.shape)
    for steps in (1, 3):
        assert built("timestep", steps=steps).count_params() == alone.count_params()


@pytest.mark.slow
def test_block_function_is_called_once_and_stacks_are_blocks():
    called = []
    layer = Recurrent(lambda index: called.append(index) or block(), STEPS)
    layer(X)
    assert called == [0]
    layer = Recurrent(Stack(block, 2), STEPS)
    expected = X
    layer(X)
    for _ in range(STEPS):
        expected = layer.block(expected)
    np.testing.assert_allclose(layer(X), expected, atol=1e-5)
    with pytest.raises(ValueError, match="A cache needs a `block`.*Stack"):
        layer.initial_cache(B, T)


def test_cached_steps_equal_one_pass():
    layer = built("timestep", cross=True)
    whole = layer(X, CONTEXT, context_padding_mask=CONTEXT_REAL)
    cache = layer.initial_cache(B, None)
    context_cache = layer.context_cache(ops.array(CONTEXT))
    start = 0
    for length in (2, 1, 2):
        step, cache = layer(
            X[:, start : start + length],
            cache=cache,
            context_cache=context_cache,
            context_padding_mask=CONTEXT_REAL,
        )
        np.testing.assert_allclose(step, whole[:, start : start + length], atol=5e-5)
        start += length
    assert len(cache["layers"]) == STEPS
    keys = [np.asarray(layer["attention"]["key"])[:, :, :T] for layer in cache["layers"]]
    assert np.abs(keys[0] - keys[1]).min() > 0


@pytest.mark.slow
def test_remat_changes_no_gradient():
    from keras_attn.testing.numerics import compute_gradients

    layer = built("timestep")
    again = Recurrent.from_config({**layer.get_config(), "remat": True})
    again.build(X.shape)
    again.set_weights(layer.get_weights())
    kept, computed = (
        compute_gradients(lambda x, one=one: ops.sum(one(x) ** 3), [X], one.trainable_weights)
        for one in (layer, again)
    )
    for one, other in zip(kept, computed, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4 * np.abs(one).max())


@pytest.mark.slow
def test_implicit_mask_reaches_every_step_and_is_passed_on():
    layer, words = built("timestep", residual=PreNorm()), TokenEmbedding(9, D)
    x = words(REAL * 4)
    explicit = layer(ops.array(ops.convert_to_numpy(x)), padding_mask=REAL)
    np.testing.assert_array_equal(layer(x), explicit)
    np.testing.assert_array_equal(layer(x)._keras_mask, REAL)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((block, 0), "`num_steps`.*num_steps=0"),
        ((5, 2), "`block` must give layers.*5"),
        ((lambda index: None, 2), "`block` must give layers.*None"),
        ((block, 2, "here"), "position='here'.*timestep"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        Recurrent(*arguments)
