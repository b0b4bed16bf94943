"""`transformer` and `universal_transformer` with any score and pattern."""

import numpy as np
import oracles
import pytest
from keras import ops
from marks import slow

from keras_attn.models import transformer, universal_transformer
from keras_attn.patterns import AdaptiveSpan, Global, Local
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
