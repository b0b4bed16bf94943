"""Pieces of a text that grows by one id are those of the whole text."""

import numpy as np
import pytest
from small_tokenizers import HARD_TEXTS, MAKERS, tokenizer_of

from keras_attn.text.tokenizers.incremental_decoder import IncrementalDecoder

UNKNOWN = "\ufffd"


class Counter:
    """The text of ids, and the numbers of ids that were decoded for it."""

    def __init__(self, tokenizer):
        self.tokenizer, self.lengths = tokenizer, []

    def __call__(self, ids):
        self.lengths.append(len(ids))
        return self.tokenizer.decode_as_strings([ids])[0]


def pieces_of(decode, prompt, ids):
    decoder = IncrementalDecoder(decode, prompt)
    pieces = [decoder.add(i) for i in ids]
    return pieces, decoder.finish()


@pytest.mark.parametrize("name", MAKERS)
def test_pieces_are_the_text_after_the_prompt_and_no_sooner_than_it_is_known(name):
    tokenizer = tokenizer_of(name)
    rows = [row.tolist() for row in tokenizer.encode_as_lists(HARD_TEXTS)]
    random = np.random.default_rng(7)
    rows += [random.integers(0, tokenizer.vocabulary_size, 40).tolist() for _ in range(5)]
    silent = {tokenizer.eos_id, tokenizer.bos_id, tokenizer.pad_id}
    rows = [[i for i in row if i not in silent] for row in rows]
    text_of = lambda ids: tokenizer.decode_as_strings([ids])[0]  # noqa: E731
    for row in rows:
        for start in {0, len(row) // 3, len(row) // 2}:
            prompt, ids = row[:start], row[start:]
            before, whole = text_of(prompt), text_of(row)
            if not whole.startswith(before):  # a part of a character is no prompt
                continue
            pieces, rest = pieces_of(text_of, prompt, ids)
            assert "".join(pieces) + rest == whole[len(before) :]
            for count in range(1, len(ids) + 1):
                now = text_of(row[: start + count]).removeprefix(before)
                sent = "".join(pieces[:count])
                # All but what may be a part of a character.
                assert now.startswith(sent) and len(now) - len(sent) <= 3
                assert set(now[len(sent) :]) <= {UNKNOWN}


@pytest.mark.parametrize("name", MAKERS)
def test_the_ids_that_are_decoded_again_do_not_grow(name):
    tokenizer = tokenizer_of(name)
    row = tokenizer.encode_as_lists(["the cat, 漢字! " * 40 + "😀" * 30])[0].tolist()
    decode = Counter(tokenizer)
    pieces_of(decode, row[:9], row[9:])
    assert len(row) > 150 and max(decode.lengths[:-1]) <= 18
    # Neither for tokens that the tokenizer writes as unknown.
    decode, unknown = Counter(tokenizer), [tokenizer.vocabulary_size] * 50
    pieces, rest = pieces_of(decode, row[:9], unknown)
    assert max(decode.lengths[:-1]) <= 18
    assert decode(row[:9]) + "".join(pieces) + rest == decode(row[:9] + unknown)
    assert rest.count(UNKNOWN) <= 3
    # Nor for tokens without a text, after which the text goes on.
    decode, silent = Counter(tokenizer), [tokenizer.bos_id] * 300
    pieces, rest = pieces_of(decode, row[:2], row[2:4] + silent + row[4:15])
    assert max(decode.lengths[:-1]) <= 150
    assert decode(row[:2]) + "".join(pieces) + rest == decode(row[:15])


def test_a_run_of_spaces_is_kept_until_a_later_id_writes_it():
    for name in ("marian", "sentencepiece", "characters"):
        tokenizer = tokenizer_of(name)
        space = tokenizer.vocabulary().index({"characters": " "}.get(name, "\u2581"))
        word = tokenizer.encode_as_lists(["cat"])[0].tolist()
        ids = word + [space] * 100 + word
        pieces, rest = pieces_of(Counter(tokenizer), [], ids)
        assert "".join(pieces) + rest == tokenizer.decode_as_strings([ids])[0]


@pytest.mark.parametrize(
    ("prompt", "tokens", "expected", "rest"),
    [
        (b"a", "é日b".encode(), ["", "é", "", "", "日", "b"], ""),
        (b"a\xe6\x97", b"\xa5b", ["日", "b"], ""),  # the prompt ends in a part of a character
        (b"a", b"\xe6\x97", ["", ""], UNKNOWN),  # and here the text does
        (b"a", b"\xff" * 5, ["", "", "", UNKNOWN, UNKNOWN], UNKNOWN * 3),
        (b"", b"\xff\xf0\x9f\x98\x80", ["", "", "", "", UNKNOWN + "😀"], ""),
    ],
)
def test_a_character_of_several_ids_comes_with_its_last_one(prompt, tokens, expected, rest):
    def decode(ids):
        return bytes(ids).decode(errors="replace")

    assert pieces_of(decode, prompt, tokens) == (expected, rest)
