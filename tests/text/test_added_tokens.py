"""Added tokens before other tokenizers, against Hugging Face's library."""

import functools
import random

import pytest
import tensorflow as tf
from library_tokenizers import library, of_bytes, of_merges, of_unigrams
from marks import slow
from token_rows import rows_of
from tokenizers import AddedToken

from keras_attn.text import AddedTokens, Bytes, Characters

TOKENS = {
    "newword": {"normalized": True},
    "two": {"single_word": True},
    "Zwei": {"single_word": True, "normalized": True},
    "<tool>": {"lstrip": True},
    "dog": {"rstrip": True},
    "[x]": {"lstrip": True, "rstrip": True},
    "  ": {},
    "   ": {},
}
FRAGMENTS = [
    *TOKENS,
    "two.",
    "twos",
    "\u0301two",
    "Two",
    "zwei",
    "   \t",
    "\0",
    " ",
    "a",
    "é",
    "猫",
]
FRAGMENTS += ["\n", "n\uff45wword"]  # a wide letter, which a normaliser may write as "newword"


def texts():
    draw = random.Random(0)
    return ["".join(draw.choices(FRAGMENTS, k=draw.randint(0, 7))) for _ in range(300)]


def with_tokens(tokenizer):
    """Return a tokenizer with the tokens above its own ids."""
    ids = {token: tokenizer.vocabulary_size + i for i, token in enumerate(TOKENS)}
    config = {**tokenizer.get_config(), "added_tokens": ids}
    tokens = [{"content": token, "id": ids[token], **flags} for token, flags in TOKENS.items()]
    return AddedTokens(type(tokenizer)(**config), tokens)


@functools.cache
def both(name):
    """Return the tokenizer of the library and ours, both with the tokens."""
    if name in ("t5", "deberta", "gemma"):
        model, rules, tokenizer = (of_merges if name == "gemma" else of_unigrams)(name)
        theirs, ours = library(model, *rules), with_tokens(tokenizer)
    else:
        theirs, tokenizer = of_bytes.__wrapped__(name)  # not the kept one, which would change
        theirs.add_special_tokens(["<|endoftext|>"])
        ours = with_tokens(tokenizer)
    added = [AddedToken(t, **{"normalized": False, **flags}) for t, flags in TOKENS.items()]
    theirs.add_tokens(added)
    return theirs, ours


NAMES = ["gpt2", slow("qwen2"), slow("llama3"), slow("t5"), slow("deberta"), slow("gemma")]


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_those_of_hugging_face(name):
    """In a graph and in Python, and in a tokenizer that is read from bytes."""
    theirs, ours = both(name)
    lines = texts()
    expected = [encoding.ids for encoding in theirs.encode_batch(lines)]
    assert rows_of(*ours.encode(tf.constant(lines))) == expected
    assert [row.tolist() for row in ours.encode_as_lists(lines)] == expected
    again = AddedTokens.from_bytes(ours.to_bytes())
    assert [row.tolist() for row in again.encode_as_lists(lines[:50])] == expected[:50]
    graph = tf.function(ours.encode, input_signature=[tf.TensorSpec([None], tf.string)])
    assert rows_of(*graph(tf.constant(lines[:20]))) == expected[:20]


def test_decoded_texts_have_the_tokens():
    """But not the white space that some of them take."""
    tokenizer = both("gpt2")[1]
    takes_space = [
        token for token, flags in TOKENS.items() if "lstrip" in flags or "rstrip" in flags
    ]
    lines = [line for line in texts() if not any(token in line for token in takes_space)]
    rows = tokenizer.encode_as_lists(lines)
    assert len(lines) > 50 and tokenizer.decode_as_strings(rows) == lines
    ids = tf.ragged.constant([row.tolist() for row in rows]).to_tensor(tokenizer.eos_id)
    assert [text.decode() for text in tokenizer.decode(ids).numpy()] == lines
    for row, line in zip(rows[:20], lines, strict=False):
        assert b"".join(tokenizer.tokens(row).numpy().tolist()).decode() == line


def test_no_text_and_no_token_in_a_batch():
    for tokenizer in (both("gpt2")[1], AddedTokens(Bytes(), [{"content": "b", "id": 9}])):
        assert tokenizer.encode(tf.constant([], tf.string), end=False)[0].shape[0] == 0
        assert tokenizer.encode(["", ""], end=False)[1].numpy().tolist() == [0, 0]
        assert tokenizer.encode(["a"], end=False)[1].numpy().tolist() == [1]


def test_tokens_outside_the_vocabulary_are_refused():
    characters = Characters("abc")
    for token in ({"content": "", "id": 3}, {"content": "x", "id": 99}):
        with pytest.raises(ValueError, match="`tokens` must be a dict of a content and one of"):
            AddedTokens(characters, [token])
