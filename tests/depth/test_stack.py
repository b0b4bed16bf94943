import functools

import keras
import numpy as np
import oracles
import pytest
from keras import ops

from keras_attn.depth import ACT, Recurrent, Reversible, Stack
from keras_attn.layers import FeedForward, MultiHeadAttention, TokenEmbedding, TransformerBlock

B, T, S, N, H, D, L = 2, 5, 7, 3, 2, 11, 2
X, CONTEXT = oracles.random(B, T, D), oracles.random(B, S, D)
REAL = np.arange(T)[None] < np.array([[5], [3]])
CONTEXT_REAL = np.arange(S)[None] < np.array([[4], [7]])


def block(index, residual="post_norm", cross=False):
    """Return a block whose inner width grows with the index."""
    return TransformerBlock(
        MultiHeadAttention(N, H, pattern="causal"),
        FeedForward(5 + index),
        cross_attention=MultiHeadAttention(N, H) if cross else None,
        residual=residual,
    )


def built(residual="post_norm", cross=False, layers=L, **arguments):
    stack = Stack(lambda index: block(index, residual, cross), layers, **arguments)
    stack.build(X.shape, *([CONTEXT.shape] if cross else []))
    oracles.scramble(stack)
    return stack


@pytest.mark.parametrize("residual", ["post_norm", "pre_norm"])
def test_output_equals_the_formula(residual):
    stack = built(residual)
    expected = X
    for layer in stack.blocks:
        expected = oracles.block(
            expected,
            oracles.block_weights(layer),
            REAL[:, None, None] & oracles.causal(T, T),
            pre_norm=residual == "pre_norm",
        )
    if residual == "pre_norm":
        expected = oracles.layer_norm(expected, *oracles.norm_weights(stack.norm), 1e-6)
    np.testing.assert_allclose(stack(X, padding_mask=REAL), expected, atol=5e-5)


def test_blocks_may_differ_by_index():
    stack = built()
    assert [layer.feed_forward.intermediate_dim for layer in stack.blocks] == [5, 6]
    assert len({id(w) for w in stack.weights}) == len(stack.weights) == L * 16


@pytest.mark.parametrize("residual, norms", [("post_norm", 2 * L), ("pre_norm", 2 * L + 1)])
def test_number_of_norms(residual, norms):
    gammas = [w for w in built(residual).weights if w.name == "gamma"]
    assert len(gammas) == norms


def test_the_closing_norm_is_of_the_kind_of_the_last_block():
    from keras_attn.norms import RMSNorm
    from keras_attn.residuals import PreNorm

    stack = built(PreNorm(norm=RMSNorm(0.25)))
    assert repr(stack.norm) == "RMSNorm(epsilon=0.25)"
    assert stack.norm.scale is not stack.blocks[-1].feed_forward_residual.norm.scale


def test_stack_accepts_a_list_of_blocks():
    blocks = [block(0), block(3)]
    stack = Stack(blocks)
    assert stack.num_layers == 2 and stack.blocks == blocks
    np.testing.assert_array_equal(stack(X), blocks[1](blocks[0](X)))


def test_scores_of_every_block():
    stack = built(cross=True)
    output, scores = stack(X, CONTEXT, return_attention_scores=True)
    np.testing.assert_array_equal(output, stack(X, CONTEXT))
    assert [tuple(s["attention"].shape) for s in scores] == [(B, N, T, T)] * L
    assert all("cross_attention" in s for s in scores)


def test_blocks_without_cross_attention_have_no_context_cache():
    with pytest.raises(ValueError, match="`context_cache` needs blocks with `cross_attention`"):
        built(layers=2).context_cache(ops.array(CONTEXT))


def test_implicit_mask_reaches_every_block_and_is_passed_on():
    stack, words = built("pre_norm"), TokenEmbedding(9, D)
    x = words(REAL * 4)
    explicit = stack(ops.array(ops.convert_to_numpy(x)), padding_mask=REAL)
    np.testing.assert_array_equal(stack(x), explicit)
    np.testing.assert_array_equal(stack(x)._keras_mask, REAL)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((block, 0), "`num_layers`.*num_layers=0"),
        ((block, None), "`num_layers`.*num_layers=None"),
        (([],), "`num_layers`.*num_layers=0"),
        (([block(0)], 2), "`num_layers`.*num_layers=2, 1 blocks"),
        ((5,), "`block` must be a function.*block=5"),
        ((lambda index: None, 2), "`block` must give layers of the class.*None at 0"),
        ((block(0), 2), r"`block` must be a function.*`Recurrent`.*TransformerBlock\("),
        (([block(0), FeedForward(8)],), r"layers.Block`, such as a.*FeedForward\(8\) at 1"),
        (([keras.layers.Dense(8)],), "layers.Block`, such as a.*<Dense"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        Stack(*arguments)


@pytest.mark.slow
def test_stacks_may_be_blocks():
    """Stacks are blocks if their output is as wide as their input; memories are refused."""
    stack = Stack([Stack(block, 2), Stack(block, 1)])
    assert stack(X).shape == X.shape
    with pytest.raises(ValueError, match=r"memory.*stacks.*Stack\(\[Transf"):
        stack(X, memory=np.zeros((len(X), 2, 3, D)))

    def wide(index):
        return Reversible(functools.partial(block, residual="pre_norm"), 1, join="concatenate")

    for outer in (Stack(wide, 2), Recurrent(wide, 2), ACT(wide, 2)):
        with pytest.raises(ValueError, match=rf"Reversible\(\[.* makes {2 * D} of {D}"):
            outer.build(X.shape)


def test_repr_shows_the_first_block():
    assert repr(Stack(block, 2)).startswith("Stack([TransformerBlock(MultiHeadAttention(3, 2, ")
    assert repr(Stack(block, 2)).endswith("FeedForward(5)), ...], 2)")
    assert repr(Recurrent(block, 3, "timestep")).endswith(
        "FeedForward(5)), 3, position=Timestep())"
    )
