"""Added tokens before other tokenizers, against Hugging Face's library."""

import random

import pytest
import tensorflow as tf
from marks import slow
from test_byte_level_bpe import trained as bytes_of_words
from test_metaspace import library, of_merges, of_unigrams
from token_rows import rows_of
from tokenizers import AddedToken

from keras_attn.text import AddedTokens, ByteLevelBPE, Characters

TOKENS = [
    ("newword", {"normalized": True}),
    ("two", {"single_word": True}),
    ("Zwei", {"single_word": True, "normalized": True}),
    ("<tool>", {"lstrip": True}),
    ("dog", {"rstrip": True}),
    ("[x]", {"lstrip": True, "rstrip": True}),
    ("  ", {}),
    ("   ", {}),
]
WORDS = [token for token, _ in TOKENS]
WORDS += ["two.", "twos", "\u0301two", "Two", "zwei", "   \t", "\0", " ", "a", "é", "猫", "\n"]


def texts():
    draw = random.Random(0)
    return ["".join(draw.choices(WORDS, k=draw.randint(0, 7))) for _ in range(300)]


def with_tokens(tokenizer, size):
    """Return a tokenizer with the tokens above its own ids."""
    ids = {token: size + i for i, (token, _) in enumerate(TOKENS)}
    inner = type(tokenizer)(**{**tokenizer.get_config(), "added_tokens": ids})
    tokens = [{"content": token, "id": ids[token], **flags} for token, flags in TOKENS]
    return AddedTokens(inner, tokens)


def theirs(model):
    added = [AddedToken(token, **{"normalized": False, **flags}) for token, flags in TOKENS]
    model.add_tokens(added)
    return model


def cases(name):
    if name in ("t5", "deberta", "gemma"):
        model, rules, tokenizer = (of_merges if name == "gemma" else of_unigrams)(name)
        return theirs(library(model, *rules)), with_tokens(tokenizer, tokenizer.vocabulary_size)
    model, tokenizer = bytes_of_words.__wrapped__(name)
    config = {**tokenizer.get_config(), "special_tokens": {}, "eos_id": None}
    tokenizer = ByteLevelBPE(**config)
    return theirs(model), with_tokens(tokenizer, tokenizer.vocabulary_size)


@pytest.mark.parametrize(
    "name", ["gpt2", slow("qwen2"), slow("llama3"), "t5", *map(slow, ["deberta", "gemma"])]
)
def test_ids_are_those_of_hugging_face(name):
    """In a graph and in Python, and in a tokenizer that is read from bytes."""
    model, tokenizer = cases(name)
    lines = texts()
    expected = [encoding.ids for encoding in model.encode_batch(lines)]
    assert rows_of(*tokenizer.encode(tf.constant(lines))) == expected
    assert [row.tolist() for row in tokenizer.encode_as_lists(lines)] == expected
    again = AddedTokens.from_bytes(tokenizer.to_bytes())
    assert [row.tolist() for row in again.encode_as_lists(lines[:50])] == expected[:50]
    graph = tf.function(tokenizer.encode, input_signature=[tf.TensorSpec([None], tf.string)])
    assert rows_of(*graph(tf.constant(lines[:20]))) == expected[:20]


def test_decoded_texts_have_the_tokens():
    tokenizer = cases("gpt2")[1]
    lines = [text for text in texts() if "<tool>" not in text and "[x]" not in text]
    lines = [line for line in lines if "dog" not in line]
    rows = tokenizer.encode_as_lists(lines)
    assert tokenizer.decode_as_strings(rows) == lines
    ids, pieces = rows[5], tokenizer.tokens(rows[5]).numpy().tolist()
    assert b"".join(pieces).decode() == lines[5] and len(pieces) == len(ids)


def test_tokens_outside_the_vocabulary_are_refused():
    characters = Characters("abc")
    for token in ({"content": "", "id": 3}, {"content": "x", "id": 99}):
        with pytest.raises(ValueError, match="`tokens` must be a dict of a content and one of"):
            AddedTokens(characters, [token])
