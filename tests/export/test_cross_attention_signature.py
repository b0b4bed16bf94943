"""The signature `attention`: cross-attention weights of each generated token."""

import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn import export, models, text
from keras_attn.generation import Beam, Greedy

SENTENCES = ["the cat sat on the mat", "a dog ran over the hill", "the dog sat"]
TEXTS = ["the cat ran", "", "a dog \U0001f600"]
MAX_LENGTH, LAYERS, HEADS = 5, 2, 2
SIZES = {"num_layers": LAYERS, "num_heads": HEADS, "hidden_dim": 10, "intermediate_dim": 11}
BOS = 2
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def translator():
    tokenizer = text.SentencePiece.train(SENTENCES * 3, vocabulary_size=36)
    model = models.transformer(tokenizer.vocabulary_size, **SIZES, residual="pre_norm")
    oracles.scramble(model, seed=4, scale=0.7)
    return model, export.Translator(model, tokenizer, Beam(2), MAX_LENGTH)


@pytest.fixture(scope="module")
def outputs(translator):
    tensors = translator[1].attention(tf.constant(TEXTS))
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def weights_step_by_step(model, source_ids, generated):
    """Weights (L, N, T, S) of one row, token by token with caches."""
    constants, cache = model.start(source_ids[None], len(generated))
    weights = []
    for t, token in enumerate([BOS, *generated[:-1]]):
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
        weights.append([layer["cross_attention"][0, :, 0] for layer in scores])
    return np.stack(weights, axis=2)


def test_any_end_token_ends_a_translation_and_its_weights(translator):
    """The second of two end tokens is generated: it counts as the token that ends the row."""
    model, whole = translator
    ids, lengths = whole.tokenizer.encode(TEXTS[:1])
    first, *_ = free = greedy_ids(model, ids.numpy())
    end = next(token for token in free if token != first)
    arguments = model, whole.tokenizer, Greedy(), MAX_LENGTH
    ending = export.Translator(*arguments, eos_id=[3, end])  # its function refers to it weakly
    tensors = ending.attention(TEXTS[:1])
    length = free.index(end) + 1
    assert tensors["lengths"].numpy().tolist() == [length]
    expected = whole.tokenizer.tokens(free[: length - 1]).numpy().tolist()
    assert tensors["tokens"][0].numpy().tolist() == [*expected, b""]
    assert tensors["translation"].numpy()[0] == b"".join(expected).strip()
    weights = weights_step_by_step(model, ids[0].numpy(), free[:length])
    np.testing.assert_allclose(tensors["cross_attention"][0], weights, atol=1e-5)


def greedy_ids(model, source_ids):
    """The most likely tokens, without caches or a graph."""
    ids = [BOS]
    for _ in range(MAX_LENGTH):
        logits = model({"source_ids": source_ids, "target_ids": np.array([ids])})
        ids.append(int(np.argmax(logits[0, -1])))
    return ids[1:]


def test_translations_and_weights_are_those_of_decoding_with_caches(translator, outputs):
    model, python = translator
    ids, lengths = (x.numpy() for x in python.tokenizer.encode(TEXTS))
    decoded = python.ids(ids, lengths)
    generated = decoded["ids"].numpy()
    texts = python.tokenizer.decode(generated)
    np.testing.assert_array_equal(outputs["translation"], np.where(lengths > 1, texts, b""))
    real = lengths > 1
    np.testing.assert_allclose(outputs["score"][real], decoded["score"][real], rtol=1e-6)
    assert outputs["cross_attention"].shape[:3] == (len(TEXTS), LAYERS, HEADS)
    assert outputs["lengths"][0] > 1
    for row in (0, 2):
        source, target = outputs["source_lengths"][row], outputs["lengths"][row]
        assert source == lengths[row]
        expected = weights_step_by_step(model, ids[row, :source], generated[row, :target])
        weights = outputs["cross_attention"][row]
        np.testing.assert_allclose(weights[..., :target, :source], expected, atol=1e-5)
        assert not weights[..., target:, :].any() and not weights[..., source:].any()
        np.testing.assert_allclose(weights[..., :target, :].sum(axis=-1), 1, atol=1e-5)
    assert outputs["lengths"][1] == outputs["source_lengths"][1] == 0
    assert not outputs["cross_attention"][1].any()


def test_joined_tokens_are_the_texts(outputs):
    """Except leading spaces, which SentencePiece adds to the first word."""
    read = ["the cat ran", "", "a dog \ufffd"]
    generated = [translation.decode() for translation in outputs["translation"]]
    for name, texts in (("source_", read), ("", generated)):
        tokens, lengths = outputs[f"{name}tokens"], outputs[f"{name}lengths"]
        for row, length, expected in zip(tokens, lengths, texts, strict=True):
            assert b"".join(row[:length]).decode().lstrip() == expected.lstrip()
            assert not any(row[length:])


def test_an_empty_batch_gives_empty_outputs(translator, outputs):
    tensors = translator[1].attention(tf.zeros([0], tf.string))
    assert {name: len(tensor.shape) for name, tensor in tensors.items()} == {
        name: array.ndim for name, array in outputs.items()
    }
    assert all(tensor.shape[0] == 0 for tensor in tensors.values())


def test_a_model_without_cross_attention_weights_lacks_the_signature():
    tokenizer = text.Characters.train(SENTENCES)
    model = models.universal_transformer(tokenizer.vocabulary_size, **SIZES, depth="act")

    class UserModel:
        """The attributes of a model that `generate` needs."""

        reads_prompt, embedding, weights = False, model.embedding, model.weights
        start, step = model.start, model.step
        max_length = max_source_length = None

    own, whole = (export.Translator(each, tokenizer, max_length=3) for each in (UserModel(), model))
    assert set(own.signatures) == {"serving_default", "ids"}
    assert set(whole.signatures) == {"serving_default", "ids", "attention", "halting"}
    del UserModel.max_source_length
    with pytest.raises(ValueError, match="UserModel without max_source_length"):
        export.Translator(UserModel(), tokenizer, max_length=3)
