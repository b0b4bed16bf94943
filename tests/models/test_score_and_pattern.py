"""Builders of models with any score and pattern, position and residual."""

import keras
import numpy as np
import oracles
import pytest
from keras import ops
from marks import slow, slow_but

from keras_attn import residuals
from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.depth import Stack
from keras_attn.generation import generate
from keras_attn.layers import (
    FeedForward,
    GatedFeedForward,
    MultiHeadAttention,
    TokenEmbedding,
    TransformerBlock,
)
from keras_attn.models import (
    CausalLanguageModel,
    bert,
    gpt,
    llama,
    transformer,
    universal_transformer,
)
from keras_attn.norms import LayerNorm, NoNorm, RMSNorm
from keras_attn.ops.activations import gelu_tanh
from keras_attn.patterns import AdaptiveSpan, Global, Local
from keras_attn.positions import Rotary
from keras_attn.residuals import ReZero
from keras_attn.scores import Additive, ALiBi, DotProduct, Relative

SIZES = {
    "vocabulary_size": 17,
    "num_layers": 1,
    "num_heads": 3,
    "hidden_dim": 6,
    "intermediate_dim": 11,
}
SOURCE = np.array([[5, 7, 16, 9, 3], [8, 4, 3, 0, 0], [12, 3, 0, 0, 0]])
TARGET = np.array([[2, 6, 10, 4], [2, 13, 11, 5], [2, 9, 7, 8]])
GLOBAL = Local(2, causal=False) | Global(1)
IDS = {"source_ids": SOURCE, "target_ids": TARGET}
BUILDERS = pytest.mark.parametrize("build", [transformer, universal_transformer])
# Each score and pattern with one of the builders.
CHOICES = pytest.mark.parametrize(
    "build, choices",
    [
        (transformer, {"score": "relative", "pattern": Local(2, causal=False)}),
        slow(universal_transformer, {"score": Additive(5), "pattern": AdaptiveSpan(7)}),
        slow(*(universal_transformer, {"score": DotProduct() + ALiBi(), "pattern": GLOBAL})),
    ],
    ids=lambda x: getattr(x, "__name__", str(x)),
)


def made(build, **choices):
    model = build(**SIZES, **choices)
    oracles.scramble(model, scale=0.5)
    return model


def attentions(model):
    """Return the self-attentions of the encoder and of the decoder, and the cross-attentions."""
    encoder, decoder = model.encoder.blocks, model.decoder.blocks
    return (
        [block.attention for block in encoder],
        [block.attention for block in decoder],
        [block.cross_attention for block in decoder],
    )


@pytest.mark.slow
@CHOICES
def test_cached_steps_equal_one_pass_and_later_tokens_have_no_influence(build, choices):
    model = made(build, **choices)
    whole = np.asarray(model(IDS))
    changed = np.where(np.arange(4) < 2, TARGET, 15)
    after = np.asarray(model({**IDS, "target_ids": changed}))
    np.testing.assert_array_equal(after[:, :2], whole[:, :2])
    constants, cache = model.start(IDS, max_length=5)
    for position in range(4):
        tokens = TARGET[:, position : position + 1]
        logits, cache = model.step(tokens, constants, cache, ops.arange(position, position + 1))
        np.testing.assert_allclose(logits[:, 0], whole[:, position], atol=1e-4)


@pytest.mark.slow
@BUILDERS
def test_each_attention_has_weights_of_its_own(build):
    model = made(build, score=Additive(5), pattern=AdaptiveSpan(7))
    *own, cross = ({id(layer): layer for layer in side} for side in attentions(model))  # repeated
    layers = [layer for side in (*own, cross) for layer in side.values()]
    paths = {weight.path for layer in layers for weight in layer.score.weights}
    assert len(paths) == 4 * len(layers)
    assert len({id(layer.score) for layer in layers}) == len(layers)
    spans = {id(layer.pattern.span) for side in own for layer in side.values()}
    assert len(spans) == sum(map(len, own))


@pytest.mark.slow
@BUILDERS
def test_cross_attention_has_no_distances(build):
    encoder, decoder, cross = attentions(made(build, score="relative"))
    assert all(isinstance(layer.score, Relative) for layer in (*encoder, *decoder))
    assert all(isinstance(layer.score, DotProduct) for layer in cross)
    assert all(layer.pattern.simple_rule == "full" for layer in cross)
    *_, cross = attentions(made(build, score="additive"))
    assert all(isinstance(layer.score, Additive) for layer in cross)


ALIBI = {"score": DotProduct() + ALiBi(), "residual": "sandwich_norm", "epsilon": 1e-2}
PAIRS = {
    "gpt without positions": lambda: (
        gpt(**SIZES, **ALIBI, dropout=0.0, position=None, pattern=Local(3)),
        by_hand(
            MultiHeadAttention(3, 2, score=DotProduct() + ALiBi(), pattern=Local(3)),
            FeedForward(11, gelu_tanh),
            LayerNorm(1e-2),
        ),
    ),
    "llama with positions that are added": lambda: (
        llama(**SIZES, **ALIBI, position="sinusoidal", tied=True),
        by_hand(
            MultiHeadAttention(
                3, 2, score=DotProduct() + ALiBi(), pattern="causal", use_bias=False
            ),
            GatedFeedForward(11),
            RMSNorm(1e-2),
            position="sinusoidal",
        ),
    ),
}


def by_hand(attention, feed_forward, norm, **model):
    residual = residuals.SandwichNorm(norm=norm)
    block = TransformerBlock(attention, feed_forward, residual=residual)
    embedding = TokenEmbedding(17, 6, scaled=False)
    return CausalLanguageModel(embedding, Stack([block], name="depth"), **model)


@pytest.mark.parametrize("name", slow_but(["gpt without positions"], PAIRS))
def test_other_values_by_argument_make_the_model_of_these_values(name):
    built, expected = PAIRS[name]()
    assert [w.shape for w in built.weights] == [w.shape for w in expected.weights]
    oracles.scramble(built, scale=0.5)
    expected.set_weights(built.get_weights())
    logits = np.asarray(expected(TARGET))
    np.testing.assert_allclose(built(TARGET), logits, atol=1e-5)
    assert np.abs(logits - np.asarray(expected(TARGET[:, ::-1]))).max() > 0.1


@pytest.mark.slow
def test_a_position_of_heads_is_that_of_each_attention():
    sizes = {**SIZES, "num_layers": 2}
    model = bert(**sizes, position="rotary", residual="re_zero", score="additive")
    first, second = model.encoder.blocks
    assert model.position is None and isinstance(first.attention.position, Rotary)
    assert first.attention.position is not second.attention.position
    assert isinstance(first.residual, ReZero) and isinstance(first.residual.norm, NoNorm)
    assert isinstance(first.attention.score, Additive) and model.max_length is None


@pytest.mark.slow
@pytest.mark.parametrize("build", [gpt, bert, llama])
def test_models_of_other_values_are_saved_and_generate(build, tmp_path):
    values = {"score": DotProduct() + ALiBi(), "position": None, "residual": "post_norm"}
    model = build(**{**SIZES, "num_layers": 2}, **values, epsilon=1e-3)
    norms = [layer for layer in flatten_layers(model) if type(layer) in (LayerNorm, RMSNorm)]
    assert len(norms) >= 4 and all(norm.epsilon == 1e-3 for norm in norms)
    depth = model.encoder if build is bert else model.depth
    assert len({id(block.attention.score) for block in depth.blocks}) == 2
    oracles.scramble(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(TARGET), model(TARGET))
    if build is not bert:
        (ids, _), (expected, _) = (generate(x, TARGET, max_length=5) for x in (loaded, model))
        np.testing.assert_array_equal(ids, expected)
