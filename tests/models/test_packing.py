"""Packed rows: each sequence has the logits and gradients that it has alone in a row."""

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from marks import slow, slow_but
from models import formulas

from keras_attn import models
from keras_attn.depth import Reversible, Stack
from keras_attn.layers import (
    FeedForward,
    MaskedTokenHead,
    MultiHeadAttention,
    SeparableConvTransition,
    TokenEmbedding,
    TransformerBlock,
)
from keras_attn.losses import LabelSmoothedCrossentropy
from keras_attn.norms import LayerNorm
from keras_attn.patterns import LSH, Local
from keras_attn.positions import Learned

V, D = formulas.V, formulas.D
SIZES = {**formulas.SIZES, "num_layers": 1}
LENGTHS = (5, 3, 7)  # of the sequences of a row, or of its targets
SOURCE_LENGTHS = (2, 7, 3)
LONGEST, PADDING = 7, 2  # as long as a table of learned positions, less than a row
RANDOM = np.random.default_rng(3)
TARGETS, SOURCES, LABELS = (
    [RANDOM.integers(1, V, length).astype("int32") for length in lengths]
    for lengths in (LENGTHS, SOURCE_LENGTHS, LENGTHS)
)


def by_parts(**attention):
    """A model with other values of the axes: reversible blocks, rotary positions, a window."""

    def block(index):
        return TransformerBlock(
            MultiHeadAttention(2, 4, **attention), FeedForward(7), residual="pre_norm"
        )

    embedding = TokenEmbedding(V, D)
    return models.CausalLanguageModel(embedding, Reversible(block, 2), position=None)


def without_memory(build, **arguments):
    return formulas.without_memory(build(**SIZES, **arguments))


def masked():
    """A masked language model with learned positions and a norm, and no segment embedding."""

    def block(index):
        return TransformerBlock(MultiHeadAttention(2, 4), FeedForward(7))

    embedding = TokenEmbedding(V, D)
    head = MaskedTokenHead(embedding)
    position, encoder = Learned(LONGEST), Stack(block, 2)
    return models.MaskedLanguageModel(embedding, position, None, LayerNorm(), encoder, head)


MODELS = {
    "gpt": lambda: models.gpt(**SIZES, max_length=LONGEST),
    "deep_char_transformer": lambda: models.deep_char_transformer(**SIZES, max_length=LONGEST),
    "transformer_xl": lambda: without_memory(models.transformer_xl, memory_length=3),
    "adaptive_span_transformer": lambda: without_memory(
        models.adaptive_span_transformer, max_span=4, ramp=2
    ),
    "sparse_transformer": lambda: models.sparse_transformer(**SIZES, image_shape=(3, 3, 1)),
    "reversible": lambda: by_parts(pattern=Local(3), position="rotary", implementation="blockwise"),
    "lsh": lambda: by_parts(pattern=LSH(2, num_buckets=4), score="shared_qk"),
    "masked": masked,
    "transformer": lambda: models.transformer(**SIZES),
    "act": lambda: models.universal_transformer(**formulas.SIZES, depth="act"),
}


@pytest.fixture(scope="module", params=slow_but(("transformer",), MODELS))
def model(request):
    return formulas.scrambled(MODELS[request.param]())


def packed(sequences):
    """Return one row with all sequences, and their segment ids."""
    ids = np.concatenate([*sequences, np.zeros(PADDING, "int32")])
    numbers = [np.full(len(sequence), k) for k, sequence in enumerate(sequences, start=1)]
    return ids[None], np.concatenate([*numbers, np.zeros(PADDING)]).astype("int32")[None]


def padded(sequences):
    """Return one row for each sequence."""
    return np.stack([np.pad(sequence, (0, LONGEST - len(sequence))) for sequence in sequences])


def inputs_of(model, sources, targets, pack):
    """Return the inputs of a model, made by `pack`."""
    if "token_ids" in model.input:
        sides = {"token_ids": (targets, "segment_ids")}
    else:
        sides = {
            "source_ids": (sources, "source_segment_ids"),
            "target_ids": (targets, "target_segment_ids"),
        }
    inputs = {}
    for name, (sequences, segments) in sides.items():
        if pack is packed:
            inputs[name], inputs[segments] = packed(sequences)
        else:
            inputs[name] = padded(sequences)
    return inputs


def logits_of(model, sources=SOURCES, targets=TARGETS):
    """Return the logits of each target, cut out of one packed row."""
    logits = oracles.numpy_of(model(inputs_of(model, sources, targets, packed)))[0]
    return np.split(logits[: sum(LENGTHS)], np.cumsum(LENGTHS)[:-1])


def test_packed_sequences_have_the_logits_of_separate_rows(model):
    for number, logits in enumerate(logits_of(model)):
        alone = inputs_of(model, SOURCES[number : number + 1], TARGETS[number : number + 1], packed)
        alone = {name: ids[:, :-PADDING] for name, ids in alone.items() if "segment" not in name}
        np.testing.assert_allclose(logits, model(alone)[0], atol=1e-5)


@pytest.mark.parametrize("model", ["transformer"], indirect=True)
def test_later_tokens_have_no_influence(model):
    """A changed token changes its own sequence, and no bit of the others."""
    before = logits_of(model)
    for side in (SOURCES, TARGETS):
        changed = [sequence.copy() for sequence in side]
        changed[1][0] = changed[1][0] % (V - 1) + 1
        after = logits_of(model, **{"sources" if side is SOURCES else "targets": changed})
        for number in (0, 2):
            np.testing.assert_array_equal(after[number], before[number])
        assert np.all(np.any(after[1] != before[1], axis=-1))


@pytest.mark.parametrize("model", ["transformer"], indirect=True)
def test_packed_row_of_one_sequence_equals_a_plain_row(model):
    """A row with a part of the next sequence differs, so the other tests can fail."""
    inputs = inputs_of(model, SOURCES, TARGETS, packed)
    inputs = {name: ids[:, :LONGEST] for name, ids in inputs.items()}
    tokens = {name: ids for name, ids in inputs.items() if "segment" not in name}
    one = {name: np.ones_like(ids) for name, ids in inputs.items() if "segment" in name}
    plain = np.asarray(model(tokens))
    np.testing.assert_allclose(model({**tokens, **one}), plain, atol=1e-5)
    assert not np.allclose(model(inputs), plain, atol=1e-2)


@pytest.mark.parametrize("name", ["gpt", slow("act")])
def test_gradients_are_those_of_padded_rows(name):
    """The losses include those that layers add, such as the ponder loss."""
    # Under seed 0 no unit of a feed-forward layer is positive, and its gradient is 0.
    model, loss = formulas.scrambled(MODELS[name](), seed=1), LabelSmoothedCrossentropy()
    results = []
    for pack in (packed, padded):
        labels = packed(LABELS)[0] if pack is packed else padded(LABELS)
        with tf.GradientTape() as tape:
            value = loss(labels, model(inputs_of(model, SOURCES, TARGETS, pack)))
            value += sum(model.losses)
        weights = [weight.value for weight in model.trainable_weights]
        grads = tape.gradient(value, weights)
        results.append([float(value), *map(tf.convert_to_tensor, grads)])
    oracles.check_each(*results, atol=2e-5)
    assert all(np.any(grad != 0) for grad in results[0])


def test_segment_inputs_are_not_inputs_of_the_graph():
    """Exports and fingerprints see no segment inputs; segment ids of None count as absent."""
    model = models.gpt(**SIZES, max_length=LONGEST)
    assert list(model.input) == ["token_ids"]
    plain = model({"token_ids": padded(TARGETS)})
    nothing = model({"token_ids": padded(TARGETS), "segment_ids": None})
    np.testing.assert_array_equal(nothing, plain)


def test_segments_of_a_text_are_no_documents():
    """`bert` embeds them, and its second sentence still sees the first."""
    model = formulas.scrambled(models.bert(**SIZES, max_length=LONGEST))
    ids, sentences = TARGETS[2][None], np.array([[1, 1, 1, 0, 0, 0, 0]], "int32")
    before = model({"token_ids": ids, "segment_ids": sentences})
    changed = np.where(np.arange(7) == 0, ids % (V - 1) + 1, ids)
    after = model({"token_ids": changed, "segment_ids": sentences})
    assert np.all(np.any(np.asarray(before != after), axis=-1))


@pytest.mark.slow
def test_packed_models_fit_save_and_nest(tmp_path):
    """Packed rows work in graphs compiled by XLA, with any integers, from a file, and nested."""
    model = models.gpt(**SIZES, max_length=LONGEST, dropout=0.0)
    inputs = inputs_of(model, SOURCES, TARGETS, packed)
    inputs = {name: ids.astype("int64") for name, ids in inputs.items()}
    model.compile("sgd", LabelSmoothedCrossentropy(), jit_compile=True)
    expected = float(LabelSmoothedCrossentropy()(packed(LABELS)[0], model(inputs)))
    history = model.fit(inputs, packed(LABELS)[0], verbose=0).history
    np.testing.assert_allclose(history["loss"], expected, rtol=1e-5)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(inputs), model(inputs), atol=1e-6)
    spec = {name: keras.Input((None,), dtype="int32", name=name) for name in inputs}
    around = keras.Model(spec, model(spec))
    assert around.output.shape == (None, None, V)
    np.testing.assert_allclose(around(inputs), model(inputs), atol=1e-6)


def universal(**arguments):
    return models.universal_transformer(**SIZES, **arguments)


ONES = np.ones((1, 4), "int32")
PAIR = {"source_ids": ONES, "target_ids": ONES}
SEGMENTS = {"source_segment_ids": ONES, "target_segment_ids": ONES}


@pytest.mark.parametrize(
    "build, inputs, message",
    [
        (
            lambda: models.reformer(**SIZES, axial_shape=(2, 2), chunk_length=2),
            {"token_ids": ONES, "segment_ids": ONES},
            "`num_buckets`.*LSH",
        ),
        (
            lambda: universal(transition="separable_conv"),
            {**PAIR, **SEGMENTS},
            f"neighbouring sequence.*{SeparableConvTransition.__name__}",
        ),
        (
            lambda: universal(),
            {**PAIR, "target_segment_ids": ONES},
            "each side.*without `source_segment_ids`",
        ),
        (
            lambda: models.transformer_xl(**SIZES, memory_length=3),
            {"token_ids": ONES, "segment_ids": ONES},
            "without a memory.*SegmentMemory",
        ),
        (
            lambda: models.CausalLanguageModel(TokenEmbedding(V, D), OfItsOwn()),
            {"token_ids": ONES, "segment_ids": ONES},
            "`segment_ids`.*OfItsOwn",
        ),
        (
            lambda: models.perceiver(**SIZES, latent_dim=4, num_latents=3, max_length=LONGEST),
            {"token_ids": ONES, "segment_ids": ONES},
            "`segment_ids`.*Latents",
        ),
    ],
)
def test_layers_that_mix_sequences_are_refused(build, inputs, message):
    model = build()
    state = model.initial_memory(1) if getattr(model, "memory", None) else {}
    with pytest.raises(ValueError, match=message):
        model({**inputs, **state})


class OfItsOwn(keras.layers.Layer):
    supports_masking = True

    def call(self, x):
        return x
