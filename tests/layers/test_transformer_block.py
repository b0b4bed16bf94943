import keras
import numpy as np
import oracles
import pytest
from keras import ops
from marks import slow

from keras_attn.layers import FeedForward, MultiHeadAttention, TokenEmbedding, TransformerBlock
from keras_attn.memory import KVCache
from keras_attn.norms import LayerNorm
from keras_attn.residuals import PostNorm, PreNorm
from keras_attn.scores import ALiBi, DotProduct

B, T, S, N, H, D, F, C = 2, 5, 7, 3, 4, 11, 13, 17
X, CONTEXT = oracles.random(B, T, D), oracles.random(B, S, C)
REAL = np.arange(T)[None] < np.array([[5], [3]])
CONTEXT_REAL = np.arange(S)[None] < np.array([[4], [7]])


def block(cross=False, pattern="dense", **arguments):
    return TransformerBlock(
        MultiHeadAttention(N, H, pattern=pattern),
        FeedForward(F),
        cross_attention=MultiHeadAttention(N, H) if cross else None,
        **arguments,
    )


def built(cross=False, **arguments):
    layer = block(cross, **arguments)
    layer.build(X.shape, *([CONTEXT.shape] if cross else []))
    oracles.scramble(layer)
    return layer


@pytest.mark.parametrize("residual", [slow(PostNorm(LayerNorm(1e-3))), PreNorm(LayerNorm(1e-3))])
def test_decoder_block_equals_the_formula(residual):
    """Two lengths and two widths: a mask or a context given to the wrong attention cannot fit."""
    layer = built(cross=True, pattern="causal", residual=residual)
    expected = oracles.block(
        X,
        oracles.block_weights(layer),
        REAL[:, None, None] & oracles.causal(T, T),
        pre_norm=isinstance(residual, PreNorm),
        epsilon=1e-3,
        context=CONTEXT,
        context_allowed=CONTEXT_REAL[:, None, None],
    )
    output = layer(X, CONTEXT, padding_mask=REAL, context_padding_mask=CONTEXT_REAL)
    np.testing.assert_allclose(output, expected, atol=2e-5)


def test_context_attention_mask_equals_the_formula():
    """Beside the padding: who may look at what, of all heads."""
    layer, may = built(cross=True), oracles.random(B, T, S) > 0
    expected = oracles.block(
        X,
        oracles.block_weights(layer),
        np.ones((B, 1, T, T), bool),
        pre_norm=False,
        epsilon=layer.residual.norm.epsilon,
        context=CONTEXT,
        context_allowed=(may & CONTEXT_REAL[:, None])[:, None],
    )
    output = layer(X, CONTEXT, context_padding_mask=CONTEXT_REAL, context_attention_mask=may)
    np.testing.assert_allclose(output, expected, atol=2e-5)


def test_each_sublayer_has_its_own_norm():
    layer = built(cross=True)
    norms = [w for w in layer.weights if w.name in ("gamma", "beta")]
    assert len(norms) == 6 and len({id(w) for w in layer.weights}) == len(layer.weights)


def test_scores_of_each_attention():
    layer = built(cross=True)
    output, scores = layer(X, CONTEXT, return_attention_scores=True)
    np.testing.assert_array_equal(output, layer(X, CONTEXT))
    shapes = {name: tuple(s.shape) for name, s in scores.items()}
    assert shapes == {"attention": (B, N, T, T), "cross_attention": (B, N, T, S)}


def test_cached_steps_equal_one_pass():
    layer = built(cross=True, pattern="causal", residual="pre_norm")
    whole = layer(X, CONTEXT, context_padding_mask=CONTEXT_REAL)
    cache = {
        "attention": KVCache(T).initial(layer.attention, B),
        "cross_attention": layer.cross_attention.context_cache(ops.array(CONTEXT)),
    }
    for start, end in ((0, 3), (3, 4), (4, T)):
        step, cache = layer(X[:, start:end], cache=cache, context_padding_mask=CONTEXT_REAL)
        np.testing.assert_allclose(step, whole[:, start:end], atol=2e-5)


def test_masks_and_positions_reach_the_self_attention():
    layer = built(pattern="causal")
    np.testing.assert_array_equal(
        layer(X, query_positions=np.full(T, T), key_positions=np.arange(T)),
        layer_of_another_pattern(layer)(X),
    )
    mask = oracles.causal(T, T)
    np.testing.assert_allclose(
        layer_of_another_pattern(layer)(X, attention_mask=mask), layer(X), atol=1e-6
    )


def layer_of_another_pattern(layer):
    """The same weights, dense."""
    dense = built()
    dense.set_weights(layer.get_weights())
    return dense


def test_implicit_masks_equal_explicit_ones_and_are_passed_on():
    words, others = TokenEmbedding(9, D), TokenEmbedding(9, C)
    ids, context_ids = REAL * 4, CONTEXT_REAL * 5
    layer = built(cross=True)
    implicit = layer(words(ids), others(context_ids))
    plain = [ops.array(ops.convert_to_numpy(x)) for x in (words(ids), others(context_ids))]
    explicit = layer(*plain, padding_mask=REAL, context_padding_mask=CONTEXT_REAL)
    np.testing.assert_array_equal(implicit, explicit)
    np.testing.assert_array_equal(implicit._keras_mask, REAL)
    assert np.any(np.asarray(implicit) != np.asarray(layer(*plain)))


def test_implicit_masks_survive_pre_norm():
    """The norm before the attention gives a new tensor; the mask must not get lost with the old."""
    layer, words = built(residual="pre_norm"), TokenEmbedding(9, D)
    x = words(REAL * 4)
    plain = ops.array(ops.convert_to_numpy(x))
    np.testing.assert_array_equal(layer(x), layer(plain, padding_mask=REAL))


def test_dropout_applies_to_every_sublayer():
    """At a rate of nearly one nothing is left but the identity, normalised three times."""
    layer = built(cross=True, residual="post_norm", dropout=0.999999)
    oracles.scramble(layer, scale=0.0)
    for name in ("attention", "cross_attention", "feed_forward"):
        getattr(layer, f"{name}_residual").norm.gamma.assign(np.ones(D))
    oracles.scramble(layer.attention), oracles.scramble(layer.feed_forward)
    oracles.scramble(layer.cross_attention)
    expected = X.astype("float64")
    for _ in range(3):
        expected = oracles.layer_norm(expected, 1.0, 0.0, 1e-6)
    np.testing.assert_allclose(layer(X, CONTEXT, training=True), expected, atol=1e-4)
    assert np.abs(layer(X, CONTEXT, training=False) - expected).max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("attention_rate, inner_rate", [(0.5, 0.0), (0.0, 0.5)])
def test_training_reaches_the_dropout_of_each_part(attention_rate, inner_rate):
    layer = TransformerBlock(
        MultiHeadAttention(N, H, dropout=attention_rate), FeedForward(F, dropout=inner_rate)
    )
    quiet = layer(X, training=False)
    assert np.any(layer(X, training=True) != quiet)


def attention(**arguments):
    return MultiHeadAttention(N, H, **arguments)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: TransformerBlock(None, FeedForward(F)), "`attention` must be a layer.*None"),
        (lambda: TransformerBlock(attention(), "relu"), "`feed_forward` must be a layer.*'relu'"),
        (
            lambda: TransformerBlock(attention(), FeedForward(F), cross_attention=3),
            "`cross_attention` must be a layer.*3",
        ),
        (
            lambda: TransformerBlock(
                attention(), FeedForward(F), cross_attention=attention(score=DotProduct() + ALiBi())
            ),
            r"`cross_attention` attends to another sequence.*score=Sum\(\[DotProduct\(\), ALiBi",
        ),
        (lambda: block(residual="sandwich"), "residual='sandwich'"),
        (lambda: block(dropout=1.0), "`dropout`.*dropout=1.0"),
        (lambda: built()(X, CONTEXT), r"`context`.*\(2, 7, 17\).*cross_attention=None"),
        (lambda: built(cross=True)(X), "`context`.*None"),
        (lambda: built()(X[0]), r"`query`.*\(5, 11\)"),
        (
            lambda: TransformerBlock(attention(), keras.layers.Dense(1))(X),
            f"`feed_forward` must return as many features as it reads.*: 1 features for {D}",
        ),
        (
            lambda: TransformerBlock(attention(output_shape=3), FeedForward(F))(X),
            f"`attention` must return as many features as it reads.*: 3 features for {D}",
        ),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_repr_shows_the_arguments_that_differ_from_their_defaults():
    layer = block(pattern="causal", residual="pre_norm")
    text = "TransformerBlock(MultiHeadAttention(3, 4, pattern=Causal()), FeedForward(13)"
    assert repr(layer) == f"{text}, residual=PreNorm())"
    assert repr(block(pattern="causal")) == f"{text})"
