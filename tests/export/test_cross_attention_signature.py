"""The signature `attention`: which source token each written one looked at."""

import functools

import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn import export, models, text
from keras_attn.generation import Beam, Greedy

SENTENCES = ["the cat sat on the mat", "a dog ran over the hill", "the dog sat"]
QUESTIONS = ["the cat ran", "", "a dog \U0001f600"]
MAX_LENGTH, LAYERS = 7, 2
SIZES = {"num_layers": LAYERS, "num_heads": 2, "hidden_dim": 10, "intermediate_dim": 11}
BOS = 2
KINDS = {
    "beam": (
        lambda size: models.transformer(size, **SIZES, residual="pre_norm"),
        lambda: text.SentencePiece.train(SENTENCES * 3, vocabulary_size=36),
        Beam(2),
    ),
    "act": (
        lambda size: models.universal_transformer(size, **SIZES, depth="act"),
        lambda: text.Characters.train(SENTENCES),
        Greedy(),
    ),
}


@functools.cache
def made(kind):
    """The model, and its translator."""
    make_model, make_tokenizer, strategy = KINDS[kind]
    tokenizer = make_tokenizer()
    model = make_model(tokenizer.vocabulary_size)
    oracles.scramble(model, seed=4, scale=0.7)
    return model, export.Translator(model, tokenizer, strategy, MAX_LENGTH)


@pytest.fixture(scope="module", params=KINDS)
def translator(request):
    return made(request.param)


@pytest.fixture(scope="module")
def answer(translator):
    outputs = translator[1].attention(tf.constant(QUESTIONS))
    return {name: tensor.numpy() for name, tensor in outputs.items()}


def weights_step_by_step(model, source_ids, written):
    """(L, T, S) of one row: the layers run one token at a time, with caches."""
    constants, cache = model.start(source_ids[None], len(written))
    found = []
    for t, token in enumerate([BOS, *written[:-1]]):
        x = model.embedding(np.array([[token]]))
        if model.position is not None:
            x = model.position(x, np.array([t]))
        _, scores, cache = model.decoder(
            x,
            context_padding_mask=constants["mask"],
            context_cache=constants["context"],
            cache=cache,
            return_attention_scores=True,
        )
        found.append([np.mean(layer["cross_attention"][0, :, 0], axis=0) for layer in scores])
    return np.stack(found, axis=1)


def test_the_same_translations_as_without(translator, answer):
    texts, scores = translator[1].translate(QUESTIONS)
    assert [found.decode() for found in answer["translation"]] == texts
    np.testing.assert_allclose(answer["score"], scores, rtol=1e-6)


def test_weights_are_those_of_the_decoding(translator, answer):
    model, python = translator
    ids, lengths = (x.numpy() for x in python.tokenizer.encode(QUESTIONS))
    written = python.ids(ids, lengths)["ids"].numpy()
    assert answer["cross_attention"].shape[:2] == (len(QUESTIONS), LAYERS)
    assert answer["lengths"][0] > 1
    for row in (0, 2):
        source, target = answer["source_lengths"][row], answer["lengths"][row]
        assert source == lengths[row]
        expected = weights_step_by_step(model, ids[row, :source], written[row, :target])
        found = answer["cross_attention"][row]
        np.testing.assert_allclose(found[:, :target, :source], expected, atol=1e-5)
        assert not found[:, target:].any() and not found[:, :, source:].any()


def test_rows_sum_to_one_where_a_token_is(answer):
    sums = answer["cross_attention"].sum(axis=-1)
    real = np.arange(sums.shape[-1]) < answer["lengths"][:, None]
    np.testing.assert_allclose(sums, np.repeat(real[:, None], LAYERS, axis=1), atol=1e-5)
    assert real.shape[1] == answer["lengths"].max()
    assert answer["lengths"][1] == answer["source_lengths"][1] == 0


def test_joined_tokens_are_the_texts(answer):
    """But for spaces in front, which SentencePiece counts to the first word."""
    read = ["the cat ran", "", "a dog \ufffd"]
    written = [found.decode() for found in answer["translation"]]
    for name, texts in (("source_", read), ("", written)):
        tokens, lengths = answer[f"{name}tokens"], answer[f"{name}lengths"]
        for row, length, expected in zip(tokens, lengths, texts, strict=True):
            assert b"".join(row[:length]).decode().lstrip() == expected.lstrip()
            assert not any(row[length:])


def test_a_batch_of_none(translator, answer):
    found = translator[1].attention(tf.zeros([0], tf.string))
    assert {name: len(tensor.shape) for name, tensor in found.items()} == {
        name: array.ndim for name, array in answer.items()
    }
    assert all(tensor.shape[0] == 0 for tensor in found.values())


def test_a_model_that_tells_no_weights_is_exported_without():
    model, python = made("act")

    class Own:
        """What `generate` needs of a model of the user's own."""

        reads_prompt, embedding, weights = False, model.embedding, model.weights
        start, step = model.start, model.step

    own = export.Translator(Own(), python.tokenizer, max_length=3)
    assert set(own.signatures) == {"serving_default", "ids"}
    assert set(python.signatures) == {"serving_default", "ids", "attention"}
