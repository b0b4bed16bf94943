"""A model with a memory maps segments to logits and the next memory."""

import inspect
import json

import keras
import numpy as np
import oracles
import pytest
import segments
from keras import ops
from models.builders import built
from segments import B, D, L, T

from keras_attn.depth import Stack
from keras_attn.feed_forward import SeparableConvTransition
from keras_attn.layers import (
    AdaptiveEmbedding,
    AdaptiveSoftmax,
    FeedForward,
    MultiHeadAttention,
    TokenEmbedding,
    TransformerBlock,
)
from keras_attn.memory import SegmentMemory
from keras_attn.models import CausalLanguageModel, EncoderDecoder, MaskedLanguageModel, gpt
from keras_attn.patterns import AdaptiveSpan, Causal, Local
from keras_attn.registry import unbuilt

V = 17
IDS = np.random.default_rng(1).integers(1, V, (B, T)).astype("int32")


def made(memory_length=T, **arguments):
    memory = None if memory_length is None else SegmentMemory(memory_length)
    return CausalLanguageModel(TokenEmbedding(V, D), segments.built(), memory=memory, **arguments)


@pytest.fixture(scope="module")
def model():
    model = made()
    oracles.scramble(model, scale=0.8)
    return model


@pytest.fixture(scope="module")
def whole(model):
    return np.asarray(CausalLanguageModel(model.embedding, model.depth)({"token_ids": IDS}))


def read(model, counts, state=None):
    """Return the logits of all tokens, and the last state."""
    state, logits = state or model.initial_memory(B), []
    for ids, _ in segments.spread(IDS, counts):
        outputs = model({"token_ids": ops.convert_to_tensor(ids), **state})
        logits.append(outputs.pop("logits"))
        state = outputs
    return segments.gather(logits, counts), state


@pytest.mark.slow
def test_short_memory_equals_the_formula(model):
    """As the test of the stack, with the embedding table and its padding."""
    counts, table = np.array([[4, 1, 0, 6], [2, 2, 5, 2], [0, 7, 1, 3]]), model.embedding.table
    short = CausalLanguageModel(model.embedding, model.depth, memory=SegmentMemory(3))
    table = oracles.numpy_of(table)
    hidden = segments.oracle(model.depth, table[IDS] * np.sqrt(D), counts, 3, pre_norm=False)
    np.testing.assert_allclose(read(short, counts)[0], hidden @ table.T, atol=2e-4)


@pytest.mark.slow
def test_state_without_slots_starts_a_text(model, whole):
    nothing = segments.state_of(np.zeros((B, L, 0, D), "float32"), [0] * B)
    logits, state = read(model, segments.same_cuts([4, 7]), nothing)
    np.testing.assert_allclose(logits, whole, atol=2e-4)
    assert state["memory"].shape == (B, L, T, D)


@pytest.mark.slow
def test_model_has_documented_names_shapes_and_parts(model):
    assert {name: x.shape for name, x in model.input.items()} == {
        "token_ids": (None, None),
        "memory": (None, L, None, D),
        "memory_length": (None,),
    }
    assert {name: x.shape for name, x in model.output.items()} == {
        "logits": (None, None, V),
        "memory": (None, L, T, D),
        "memory_length": (None,),
    }
    again = CausalLanguageModel.from_config(model.get_config())
    config, expected = (json.dumps(unbuilt(x.get_config())) for x in (again, model))
    # A stack that was built before keeps its name in the model.
    assert config == expected.replace('"name": "stack"', '"name": "depth"')
    assert again.memory == model.memory and again.position is None
    longer = CausalLanguageModel(model.embedding, model.depth, memory=SegmentMemory(40))
    assert all(x is y for x, y in zip(longer.weights, model.weights, strict=True))


@pytest.mark.slow
def test_adaptive_softmax_head_trains_decodes_and_loads(tmp_path):
    """Losses are those of the logits; a file keeps both tables."""
    head = AdaptiveSoftmax(AdaptiveEmbedding(V, D, cutoffs=[3, 11], div_val=2))
    model = CausalLanguageModel(TokenEmbedding(V, D), segments.built(), head=head)
    oracles.scramble(model, scale=0.8)
    labels = keras.Input((None,), dtype="int32")
    losses = keras.Model([model.input["token_ids"], labels], model.head(model.depth.output, labels))
    logits = np.asarray(model({"token_ids": IDS[:, :-1]}))
    wanted = -np.take_along_axis(logits, IDS[:, 1:, None], axis=-1)[..., 0]
    np.testing.assert_allclose(losses([IDS[:, :-1], IDS[:, 1:]]), wanted, atol=2e-5)

    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.head.embedding is not again.embedding
    assert again.count_params() == model.count_params()
    np.testing.assert_allclose(again({"token_ids": IDS[:, :-1]}), logits, atol=1e-6)
    constants, cache = model.start({"token_ids": IDS}, max_length=T)
    for start, end in ((0, 4), (4, T - 1)):
        step_logits, cache = model.step(IDS[:, start:end], constants, cache, ops.arange(start, end))
        np.testing.assert_allclose(step_logits, logits[:, start:end], atol=1e-4)


def test_invalid_arguments_raise(model):
    with pytest.raises(ValueError, match="`embedding` can only be None"):
        CausalLanguageModel(None, model.depth, head=keras.layers.Dense(V))
    with pytest.raises(ValueError, match="`depth`.*accepts a memory.*Identity"):
        CausalLanguageModel(model.embedding, keras.layers.Identity(), memory=SegmentMemory(3))
    with pytest.raises(ValueError, match="`initial_memory` needs a model with a memory"):
        made(None).initial_memory(2)
    for pattern in ("dense", Causal() | Local(3, causal=False)):
        with pytest.raises(ValueError, match="`pattern` must be causal.*'attention'"):
            CausalLanguageModel(model.embedding, segments.built(pattern=pattern))


def test_predict_has_the_signature_of_keras(model):
    assert inspect.signature(type(model).predict) == inspect.signature(keras.Model.predict)


def test_last_selects_the_logits_of_one_token():
    model, ids = built("gpt"), np.array([[5, 7, 12, 9, 3], [8, 4, 3, 0, 0]])
    whole = np.asarray(model({"token_ids": ids}))
    constants, cache = model.start({"token_ids": ids}, max_length=7)
    last = np.array([[4], [2]])
    logits, _ = model.step(ids, constants, cache, ops.arange(5), last=last)
    assert logits.shape == (2, 1, 13)
    np.testing.assert_allclose(logits[:, 0], whole[[0, 1], last[:, 0]], atol=1e-4)


def test_each_layer_has_its_own_spans():
    span = AdaptiveSpan(5, ramp=2)
    model = gpt(11, num_layers=2, num_heads=2, hidden_dim=4, intermediate_dim=5, pattern=span)
    patterns = [block.attention.pattern for block in model.depth.blocks]
    assert len({*map(id, (span, *patterns))}) == 3
    assert all(pattern.max_span == 5 for pattern in patterns)


def test_layers_that_mix_later_positions_are_refused():
    def block(pattern="causal", feed_forward=None, cross_attention=None):
        attention = MultiHeadAttention(2, 4, pattern=pattern)
        return TransformerBlock(
            attention, feed_forward or FeedForward(7), cross_attention=cross_attention
        )

    def make(decoder, encoder=None):
        parts = TokenEmbedding(11, 8), None
        if encoder is None:
            return CausalLanguageModel(parts[0], Stack([decoder]))
        return EncoderDecoder(*parts, Stack([encoder]), Stack([decoder]))

    with pytest.raises(ValueError, match="must have `causal=True`"):
        make(block(feed_forward=SeparableConvTransition(7)))
    make(block(feed_forward=SeparableConvTransition(7, causal=True)))
    with pytest.raises(ValueError, match="`pattern` must be causal"):
        make(block("dense", cross_attention=MultiHeadAttention(2, 4)), block("dense"))
    make(block(cross_attention=MultiHeadAttention(2, 4)), block("dense"))


def test_a_head_without_an_embedding_is_refused():
    with pytest.raises(
        ValueError, match="`embedding` can only be None where `head` or `encoder` has one"
    ):
        MaskedLanguageModel(None, None, None, None, encoder=None, head=None)
