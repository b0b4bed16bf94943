"""Bytes as ids, against the rule of ByT5 and of Perceiver: the byte and a constant."""

import pytest
import tensorflow as tf
from token_rows import rows_of
from tricky_lines import tricky_lines

from keras_attn.text import Bytes, Template

LINES = tricky_lines(300)
PERCEIVER = ["[PAD]", "[BOS]", "[EOS]", "[MASK]", "[CLS]", "[SEP]"]
PERCEIVER_IDS = {"pad_id": 0, "unk_id": None, "bos_id": 4, "eos_id": 5}
MADE = {
    "byt5": lambda: Bytes(more_tokens=["<extra_id_0>", "<extra_id_1>"]),
    "perceiver": lambda: Bytes(PERCEIVER, template=Template((4,), (5,), (5,)), **PERCEIVER_IDS),
}


@pytest.mark.parametrize(
    ("name", "shift", "start", "end"), [("byt5", 3, [], [1]), ("perceiver", 6, [4], [5])]
)
def test_ids_are_bytes_behind_the_special_tokens(name, shift, start, end):
    """In a graph and in Python; bytes outside UTF-8 are U+FFFD, special tokens plain text."""
    tokenizer, lines = MADE[name](), [*LINES, b"</s><pad>[CLS]"]
    texts = [line.decode(errors="replace") for line in lines]
    expected = [[byte + shift for byte in text.encode()] for text in texts]
    around = [start + row + end for row in expected]
    assert rows_of(*tokenizer.encode(tf.constant(lines))) == around
    assert [row.tolist() for row in tokenizer.encode_as_lists(lines)] == expected
    assert tokenizer.decode_as_strings(around) == texts
    ids, _ = tokenizer.encode(lines)
    assert [text.decode() for text in tokenizer.decode(ids).numpy()] == texts
    again = Bytes.from_bytes(tokenizer.to_bytes())
    assert again.get_config() == tokenizer.get_config()
    assert rows_of(*again.encode(lines[:9])) == around[:9]


def test_other_ids_have_no_text():
    tokenizer = MADE["byt5"]()
    assert tokenizer.vocabulary_size == 261 and tokenizer.vocabulary()[3] == "<0x00>"
    rows = [[100, 259, 260, 101], [100, 2, 300, 101], [198, 101]]
    assert tokenizer.decode_as_strings(rows) == ["ab", "a\ufffd\ufffdb", "\ufffdb"]
    assert MADE["perceiver"]().decode_as_strings([[4, 103, 3, 104, 5, 105]]) == ["ab"]


def test_ids_of_no_special_token_are_refused():
    with pytest.raises(ValueError, match="`eos_id` must be the id of one of the 3 special tokens"):
        Bytes(eos_id=3)
