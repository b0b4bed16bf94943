"""`ParallelBlock` against the formula, and its limits."""

import numpy as np
import oracles
import pytest

from keras_attn.depth import Reversible, Stack
from keras_attn.layers import FeedForward, MultiHeadAttention, ParallelBlock
from keras_attn.memory import KVCache
from keras_attn.norms import LayerNorm
from keras_attn.residuals import LayerScale, OutputNorm, PreNorm

B, T, N, H, D, F = 2, 5, 3, 4, 11, 13
X = oracles.random(B, T, D, scale=3)
REAL = np.arange(T)[None] < np.array([[5], [3]])


def block(shared_norm=True, residual=None, kind=ParallelBlock, **arguments):
    residual = PreNorm(LayerNorm(1e-3)) if residual is None else residual
    shared = {"shared_norm": shared_norm} if kind is ParallelBlock else {}
    attention = MultiHeadAttention(N, H, pattern="causal")
    return kind(attention, FeedForward(F), residual=residual, **shared, **arguments)


def built(*arguments, **others):
    layer = block(*arguments, **others)
    layer.build(X.shape)
    oracles.scramble(layer)
    return layer


@pytest.mark.parametrize("shared_norm", [True, False])
def test_output_equals_the_formula(shared_norm):
    layer = built(shared_norm)
    weights = oracles.block_weights(layer)
    read, read_by_feed_forward = (
        oracles.layer_norm(X, *weights[name], 1e-3)
        for name in ("attention_norm", "feed_forward_norm")
    )
    assert np.allclose(read, read_by_feed_forward) == shared_norm
    assert len({id(w) for w in layer.weights}) == len(layer.weights)
    allowed = REAL[:, None, None] & oracles.causal(T, T)
    expected = X + oracles.attention(read, read, weights["attention"], allowed)[0]
    expected += oracles.feed_forward(read_by_feed_forward, weights["feed_forward"])
    np.testing.assert_allclose(layer(X, padding_mask=REAL), expected, atol=2e-5)


@pytest.mark.slow
def test_other_residuals_scale_or_normalise_each_output():
    layer = built(False, LayerScale(0.5))
    first, second = layer.attention_residual, layer.feed_forward_residual
    read, other = first.before(X), second.before(X)
    expected = X + first.factor * layer.attention(read, read)
    np.testing.assert_allclose(
        layer(X), expected + second.factor * layer.feed_forward(other), atol=1e-5
    )
    layer = built(True, OutputNorm())
    norm = layer.residual.norm
    expected = X + norm(layer.attention(X, X)) + norm(layer.feed_forward(X))
    np.testing.assert_allclose(layer(X), expected, atol=1e-5)


def test_cached_steps_and_a_memory_equal_one_pass():
    layer = built()
    whole, cache = np.asarray(layer(X)), {"attention": KVCache(T).initial(layer.attention, B)}
    for start, end in ((0, 3), (3, 4), (4, T)):
        step, cache = layer(X[:, start:end], cache=cache)
        np.testing.assert_allclose(step, whole[:, start:end], atol=2e-5)
    np.testing.assert_allclose(layer(X[:, 2:], memory=X[:, :2]), whole[:, 2:], atol=2e-5)


def test_a_stack_closes_with_the_norm_of_the_residual():
    stack = Stack(lambda index: block(residual="pre_norm"), 2)
    assert stack(X).shape == X.shape and repr(stack.norm) == "LayerNorm()"


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: block(cross_attention=MultiHeadAttention(N, H)),
            r"`cross_attention` does not fit.*use a `TransformerBlock`.*MultiHeadAttention\(3, 4\)",
        ),
        (lambda: Reversible([block()]), r"must give a `TransformerBlock`.*ParallelBlock\("),
        (lambda: built()(X, X), "`context`.*cross_attention=None"),
        (lambda: block(residual="sandwich"), "residual='sandwich'"),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()
