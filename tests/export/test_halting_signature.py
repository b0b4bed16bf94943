"""The signature `halting`: steps and remainders of each token, where the depth is an `ACT`."""

import functools

import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn import export, models, text
from keras_attn.depth import ACT, Stack
from keras_attn.layers import (
    FeedForward,
    MaskedTokenHead,
    MultiHeadAttention,
    TokenEmbedding,
    TransformerBlock,
)

D, MAX_LENGTH, BOS = 10, 5, 2
LINES = ["the cat sat", "a dog ran over the hill"]
TEXTS = ["the cat ran", "", "a dog"]
TOKENIZER = text.Characters.train(LINES)
SIZE = TOKENIZER.vocabulary_size


def depth(pattern="dense", kind=ACT):
    block = TransformerBlock(MultiHeadAttention(2, 5, pattern=pattern), FeedForward(11))
    return ACT(block, 3, halting_bias=-1.0) if kind is ACT else Stack([block])


@functools.cache
def made(kind):
    embedding = TokenEmbedding(SIZE, D)
    if kind == "causal":
        model = models.CausalLanguageModel(embedding, depth("causal"))
    elif kind == "classifier":
        model = models.Classifier(embedding, depth(), 3)
    elif kind == "masked":
        head = MaskedTokenHead(embedding)
        model = models.MaskedLanguageModel(embedding, None, None, None, depth(), head)
    else:
        sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": D, "intermediate_dim": 11}
        model = models.universal_transformer(SIZE, **sizes, depth="act", halting_bias=-1.0)
    oracles.scramble(model, seed=4, scale=0.7)
    for act in model.halting_depths.values():  # some tokens take few steps, and some many
        act.halting_unit.set_weights([oracles.random(D, 1, scale=0.7), np.array([-1.0])])
    return model


def row_alone(model, inputs):
    """Steps and remainders of rows without padding, by the depths' own output."""
    outputs = model.halting(inputs)
    return {name: [np.asarray(part)[0] for part in halting] for name, halting in outputs.items()}


def check_rows(outputs, prefix, lengths, expected):
    """Compare the rows of two outputs with lists of (steps, remainders); all else is 0."""
    steps, remainders = (outputs[f"{prefix}{name}"].numpy() for name in ("steps", "remainders"))
    assert steps.dtype == np.int32 and remainders.dtype == np.float32
    assert steps.max() > 1
    for row, length in enumerate(lengths):
        assert not steps[row, length:].any() and not remainders[row, length:].any()
        if length:
            np.testing.assert_array_equal(steps[row, :length], expected[row][0])
            np.testing.assert_allclose(remainders[row, :length], expected[row][1], atol=1e-5)


MODULES = {
    "causal": lambda model: export.TextGenerator(model, TOKENIZER, max_length=MAX_LENGTH),
    "classifier": lambda model: export.TextClassifier(model, TOKENIZER),
    "token classifier": lambda model: export.ClassPredictor(model),
    "tokens": lambda model: export.TokenGenerator(model, max_length=MAX_LENGTH),
    "masked": lambda model: export.TokenEncoder(model),
    "translator": lambda model: export.Translator(model, TOKENIZER, max_length=MAX_LENGTH),
}
OF_TEXTS, OF_IDS = ("causal", "classifier"), ("token classifier", "tokens", "masked")
MODEL_OF = {"token classifier": "classifier", "tokens": "causal"}


@functools.cache
def module_of(kind):
    """Return the functions of a model's export, which are traced once."""
    return MODULES[kind](made(MODEL_OF.get(kind, kind)))


def rows_alone(model, ids, lengths):
    """The halting of each row of ids without its padding; None of an empty row."""
    return [
        row_alone(model, {"token_ids": ids[row : row + 1, :length]}).popitem()[1]
        if length
        else None
        for row, length in enumerate(lengths)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", OF_TEXTS)
def test_steps_of_a_text_are_those_of_each_row_alone(kind):
    model, module = made(kind), module_of(kind)
    assert set(module.signatures) >= {"halting", "serving_default"}
    outputs = module.halting(tf.constant(TEXTS))
    lengths = outputs["lengths"].numpy()
    ids, _ = TOKENIZER.encode(TEXTS)
    check_rows(outputs, "", lengths, rows_alone(model, ids, lengths))
    for row, length, line in zip(outputs["tokens"].numpy(), lengths, TEXTS, strict=True):
        assert b"".join(row[:length]).decode() == line and not any(row[length:])


@pytest.mark.slow
@pytest.mark.parametrize("kind", OF_IDS)
def test_steps_of_ids_are_those_of_each_row_alone(kind, assert_ids_are_checked):
    model = made(MODEL_OF.get(kind, kind))
    ids, lengths = np.array([[5, 7, 4, 9], [6, 8, 5, 5], [4, 4, 4, 4]]), [4, 2, 0]
    outputs = module_of(kind).halting(ids, lengths)
    assert set(outputs) == {"steps", "remainders"} and outputs["steps"].shape == ids.shape
    check_rows(outputs, "", lengths, rows_alone(model, ids, lengths))
    request = {"token_ids": ids[:1].astype("int32"), "lengths": [4]}
    assert_ids_are_checked(module_of(kind).halting, SIZE, request)


@pytest.mark.slow
def test_steps_of_both_sides_of_a_translation():
    model, translator = made("translator"), module_of("translator")
    outputs = translator.halting(tf.constant(TEXTS))
    sources, _ = TOKENIZER.encode(TEXTS)
    lengths, written = outputs["source_lengths"].numpy(), outputs["lengths"].numpy()
    id_outputs = export.IdTranslator(model, max_length=MAX_LENGTH).halting(sources, lengths)
    ids = id_outputs["ids"].numpy()
    np.testing.assert_array_equal(outputs["translation"], TOKENIZER.decode(ids))
    np.testing.assert_allclose(outputs["score"], id_outputs["score"], rtol=1e-6)
    expected = [
        row_alone(
            model,
            {
                "source_ids": sources[row : row + 1, : lengths[row]],
                "target_ids": np.array([[BOS, *ids[row, : written[row] - 1]]]),
            },
        )
        if lengths[row]
        else {"encoder": None, "decoder": None}
        for row in range(len(TEXTS))
    ]
    check_rows(outputs, "source_", lengths, [halting["encoder"] for halting in expected])
    check_rows(outputs, "", written, [halting["decoder"] for halting in expected])
    np.testing.assert_array_equal(id_outputs["source_steps"], outputs["source_steps"])
    longest = written.max()
    np.testing.assert_array_equal(id_outputs["steps"][:, :longest], outputs["steps"])
    assert not id_outputs["steps"][:, longest:].numpy().any()


@pytest.mark.slow
def test_empty_batches_have_outputs_of_the_same_names():
    for kind in ("causal", "translator"):
        module = module_of(kind)
        full, empty = module.halting(tf.constant(TEXTS)), module.halting(tf.zeros([0], tf.string))
        assert full.keys() == empty.keys()
        assert all(x.shape[0] == 0 for x in empty.values())


def test_a_model_without_halting_has_no_such_signature():
    embedding = TokenEmbedding(SIZE, D)
    model = models.CausalLanguageModel(embedding, depth("causal", Stack))
    assert "halting" not in export.TokenGenerator(model).signatures
    with pytest.raises(ValueError, match="`halting` needs a model .* CausalLanguageModel"):
        model.halting(np.array([[5]]))
    unpadded = models.CausalLanguageModel(TokenEmbedding(SIZE, D, pad_id=None), depth("causal"))
    assert "halting" not in export.TokenGenerator(unpadded).signatures
