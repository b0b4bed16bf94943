"""Byte-level BPE, against Hugging Face's library."""

import pytest
import tensorflow as tf
from library_tokenizers import ALL_LINES, OPTIONS, of_bytes
from marks import slow
from token_rows import rows_of

from keras_attn.text import ByteLevelBPE
from keras_attn.text.tokenizers.byte_level_bpe import LETTERS

TEXTS = [line.decode(errors="replace") for line in ALL_LINES]


@pytest.fixture(scope="module", params=["gpt2", *map(slow, [o for o in OPTIONS if o != "gpt2"])])
def both(request):
    return of_bytes(request.param)


def test_ids_and_texts_are_those_of_hugging_face(both):
    """In a graph and in Python."""
    model, tokenizer = both
    ids, lengths = tokenizer.encode(tf.constant(ALL_LINES))
    rows = rows_of(ids, lengths)
    assert rows == [encoding.ids for encoding in model.encode_batch(TEXTS)]
    assert [row.tolist() for row in tokenizer.encode_as_lists(ALL_LINES)] == rows
    decoded = [text.decode() for text in tokenizer.decode(ids).numpy()]
    assert decoded == [model.decode(row) for row in rows]
    assert decoded == tokenizer.decode_as_strings(ids.numpy())
    if not tokenizer.get_config()["add_space"] and model.normalizer is None:
        assert decoded == TEXTS


def test_the_last_code_points_are_text(both):
    model, tokenizer = both
    lines = ["a\U0010ffffb c", "x  \U0010fffe\U0010ffff  y", "\U0010ffff", "a \U0010ffff\0"]
    expected = [encoding.ids for encoding in model.encode_batch(lines)]
    assert rows_of(*tokenizer.encode(lines)) == expected
    assert [row.tolist() for row in tokenizer.encode_as_lists(lines)] == expected


def test_ids_without_a_token_are_unknown():
    tokenizer = ByteLevelBPE(ALPHABET, [], special_tokens={"<s>": 300}, eos_id=300)
    ids = [[ALPHABET["a"], 299, 400, -1, 300, 5]]
    assert tokenizer.decode(ids).numpy()[0].decode() == "a<no token 299>\ufffd\ufffd"
    assert tokenizer.vocabulary_size == 301


ALPHABET = {letter: i for i, letter in enumerate(LETTERS)}


def test_special_tokens_are_no_text_and_their_names_are():
    tokenizer = ByteLevelBPE(ALPHABET, [], special_tokens={"<s>": 256}, eos_id=256)
    assert tokenizer.encode(["<s>"])[0].numpy().tolist() == [[60, 115, 62]]
    tokenizer = ByteLevelBPE({**ALPHABET, "<|endoftext|>": 256}, [], eos_id=256)
    assert tokenizer.tokens([97, 256]).numpy().tolist() == [b"a", b""]


def test_an_invalid_vocabulary_is_refused():
    with pytest.raises(ValueError, match="`eos_id` must be one of the 256 ids, or None"):
        ByteLevelBPE(ALPHABET, [], eos_id=256)
    with pytest.raises(ValueError, match="`vocabulary` must be a dict that holds the letter"):
        ByteLevelBPE({"a": 0}, [])
    with pytest.raises(
        ValueError, match="`pattern` must be one of 'gpt2', 'llama3', 'qwen2', 'o200k'"
    ):
        ByteLevelBPE(ALPHABET, [], "gpt4")
    with pytest.raises(ValueError, match=r"one id a token. Received: vocabulary='\[5\] repeated'"):
        ByteLevelBPE({**ALPHABET, "ab": 5}, ["a b"])
