"""The vocabulary of characters: what is learned, and what each character becomes."""

import hypothesis
import pytest
from hypothesis import strategies as st

from keras_attn.text import Characters


def test_ids_count_from_the_first_after_the_marks():
    ids, lengths = Characters("xyz").encode(["zyx", "x?"])
    assert ids.numpy().tolist() == [[6, 5, 4, 3], [4, 1, 3, 0]]
    assert lengths.numpy().tolist() == [4, 3]


def test_frequent_characters_come_first_and_ties_in_code_order():
    tokenizer = Characters.train(["cb", "ab", "b"])
    assert tokenizer.vocabulary_size == 7
    assert tokenizer.encode_as_lists(["bac"])[0].tolist() == [4, 5, 6]


def test_vocabulary_size_keeps_the_most_frequent():
    tokenizer = Characters.train(["aaabbc"], vocabulary_size=6)
    assert tokenizer.vocabulary_size == 6
    assert tokenizer.encode_as_lists(["abc"])[0].tolist() == [4, 5, 1]


def test_the_replacement_character_is_always_unknown_and_spaces_are_characters():
    tokenizer = Characters.train(line for line in ["a\ufffd", " a  b "])
    assert tokenizer.encode_as_lists(["a\ufffd"])[0].tolist()[1] == 1
    assert tokenizer.decode(tokenizer.encode(["  a b  "])[0]).numpy().tolist() == [b"  a b  "]


# Without lone surrogates, which no UTF-8 text has, and the character that stands for the unknown.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\ufffd"))


@hypothesis.given(st.lists(TEXT, max_size=5).filter(any))
@hypothesis.settings(max_examples=3, deadline=None)
def test_any_text_survives(sentences):
    tokenizer = Characters.train(sentences)
    ids, lengths = tokenizer.encode(sentences)
    assert lengths.numpy().tolist() == [len(sentence) + 1 for sentence in sentences]
    assert [line.decode() for line in tokenizer.decode(ids).numpy()] == sentences
    assert tokenizer.vocabulary_size == 4 + len(set("".join(sentences)))
    assert Characters.from_bytes(tokenizer.to_bytes()).to_bytes() == tokenizer.to_bytes()


@hypothesis.given(st.binary())
@hypothesis.settings(max_examples=5, deadline=None)
def test_any_bytes_decode_as_python_decodes_them(content):
    tokenizer = Characters("".join(map(chr, range(128))))
    decoded = tokenizer.decode(tokenizer.encode([content])[0]).numpy()[0].decode()
    # Python replaces invalid bytes by the same rule of the Unicode Standard.
    expected = content.decode(errors="replace")
    assert decoded == "".join(c if c < "\x80" else "\ufffd" for c in expected)


@pytest.mark.parametrize(
    "characters, message",
    [
        ("", "at least one character"),
        (["ab", "c"], r"a string of at least one character. Received: characters=\['ab', 'c'\]"),
        ("aba", "Received: 'a'"),
        ("a\ufffd", "U\\+FFFD"),
        ("a\ud800", "surrogates"),
    ],
)
def test_bad_vocabularies_raise(characters, message):
    with pytest.raises(ValueError, match=message):
        Characters(characters)


def test_bad_training_arguments_raise():
    with pytest.raises(ValueError, match="Received: vocabulary_size=4"):
        Characters.train(["a"], vocabulary_size=4)
    with pytest.raises(ValueError, match="`sentences` holds no character"):
        Characters.train(["", ""])
