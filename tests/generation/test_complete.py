"""`complete`: texts in, texts out, those of `generate` and of the model's export."""

import warnings

import numpy as np
import oracles
import pytest
import tensorflow as tf
from scripted_model import ScriptedModel
from small_tokenizers import HARD_TEXTS, tokenizer_of

from keras_attn import export, models, text
from keras_attn.generation import Beam, NoRepeat, Sample, complete, generate
from keras_attn.memory import StatefulSegments

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 7}
MAX_LENGTH = 7


def scrambled(model):
    oracles.scramble(model, scale=0.8)
    return model


@pytest.fixture(scope="module")
def model():
    tokenizer = tokenizer_of("characters")
    return scrambled(models.gpt(tokenizer.vocabulary_size, max_length=64, dropout=0.0, **SIZES))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sentencepiece", "byte-level bpe"])
def test_continuations_are_those_of_the_export(name):
    tokenizer, strategy = tokenizer_of(name), Sample(temperature=1.5, seed=3)
    model = models.gpt(tokenizer.vocabulary_size, max_length=30, **SIZES)
    scrambled(model)
    ends = [tokenizer.eos_id, *tokenizer.encode_as_lists(["a"])[0][-1:]]
    generator = export.TextGenerator(model, tokenizer, strategy, MAX_LENGTH, eos_id=ends)
    expected = generator.text(HARD_TEXTS)["continuation"].numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of long texts
        texts = complete(model, tokenizer, HARD_TEXTS, strategy, MAX_LENGTH, eos_id=ends)
    assert texts == [each.decode() for each in expected]
    assert any(texts)


@pytest.mark.slow
def test_translations_are_those_of_the_export():
    tokenizer, strategy = tokenizer_of("marian"), Beam(2)
    model = scrambled(models.transformer(tokenizer.vocabulary_size, **SIZES))
    translator = export.Translator(model, tokenizer, strategy, MAX_LENGTH)
    expected = translator.text(HARD_TEXTS)["translation"].numpy()
    texts = complete(model, tokenizer, HARD_TEXTS, strategy, MAX_LENGTH)
    assert texts == [each.decode() for each in expected]
    assert any(texts) and texts[HARD_TEXTS.index("")] == ""


def test_one_string_gives_one_string_and_no_texts_give_none(model):
    tokenizer = tokenizer_of("characters")
    both = complete(model, tokenizer, ["the", "a cat"], max_length=MAX_LENGTH)
    assert complete(model, tokenizer, "a cat", max_length=MAX_LENGTH) == both[1]
    assert complete(model, tokenizer, np.array(["the"]), max_length=MAX_LENGTH) == both[:1]
    assert complete(model, tokenizer, []) == []
    assert complete(model, tokenizer, "") == ""
    ids, _ = generate(model, tokenizer.encode(["the"], end=False)[0], max_length=MAX_LENGTH)
    assert both[0] == tokenizer.decode(ids).numpy()[0].decode()


def test_of_a_prompt_that_is_too_long_the_last_tokens_are_read(model):
    tokenizer = tokenizer_of("characters")
    prompt = "the cat and the " * 5
    with pytest.warns(UserWarning, match="the last 58 tokens are read.*of 80 tokens") as records:
        texts = complete(model, tokenizer, prompt, max_length=MAX_LENGTH)
    assert texts == complete(model, tokenizer, prompt[-58:], max_length=MAX_LENGTH)
    assert len(records) == 1 and records[0].filename == __file__


def test_the_models_own_first_token_begins_a_translation():
    tokenizer = tokenizer_of("characters")
    seen = []

    class Reads(ScriptedModel):
        def step(self, token_ids, *arguments, **more):
            seen.append(token_ids)
            return super().step(token_ids, *arguments, **more)

    def first(**attributes):
        model = Reads.of_texts(tokenizer, ["a"])
        vars(model).update(attributes)
        tf.config.run_functions_eagerly(True)
        try:
            complete(model, tokenizer, "a", max_length=1)
        finally:
            tf.config.run_functions_eagerly(False)
        return int(seen[-1][0, 0])

    assert first() == tokenizer.bos_id and first(start_id=5) == 5


@pytest.mark.slow
def test_a_model_with_a_memory_continues_texts():
    tokenizer = tokenizer_of("characters")
    model = scrambled(models.transformer_xl(tokenizer.vocabulary_size, memory_length=5, **SIZES))
    texts = ["the cat", "a"]
    strategy = NoRepeat("greedy", 2)
    expected = complete(model, tokenizer, texts, strategy, MAX_LENGTH)
    assert complete(StatefulSegments(model, 2), tokenizer, texts, strategy, MAX_LENGTH) == expected
    ids, lengths = tokenizer.encode(texts, end=False)
    ids, _ = generate(model, ids, strategy, MAX_LENGTH, lengths=lengths)
    assert expected == [each.decode() for each in tokenizer.decode(ids).numpy()]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"texts": None}, "`texts` must be a list of strings. Received: texts=None"),
        ({"texts": b"ab"}, "`texts` must be a list of strings. Received: texts=b'ab'"),
        ({"texts": [3, 4]}, r"`texts` must be a list of strings. Received: texts=\[3, 4\]"),
        (
            {"tokenizer": text.Characters("abc")},
            "vocabularies of the same size. Received: .* and 7",
        ),
        ({"tokenizer": "words.model"}, r"`SentencePiece.load\(path\)`.*tokenizer='words.model'"),
        ({"tokenizer": None}, r"`SentencePiece.load\(path\)`.*tokenizer=None"),
        ({"model": None}, "`model` must be an `EncoderDecoder` or a `CausalLanguageModel`"),
        (
            {"max_length": 0},
            "`max_length` must be an integer of at least 1. Received: max_length=0",
        ),
        (
            {"max_length": 65},
            "`max_length` must be at most 64, the number of the model's positions",
        ),
        ({"strategy": "beem"}, "Did you mean 'beam'"),
        ({"eos_id": 999}, "`eos_id` must be a token of the model's"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(model, changed, message):
    arguments = {"model": model, "tokenizer": tokenizer_of("characters"), "texts": ["a"]}
    with pytest.raises(ValueError, match=message):
        complete(**{**arguments, **changed})
