"""Tokenizers by the rules of a `tokenizer.json`, against Hugging Face's library."""

import pytest
import tensorflow as tf
from library_tokenizers import LINES, library, of_merges, of_unigrams
from marks import slow_but
from token_rows import rows_of

from keras_attn.text import Metaspace
from recipes.benchmarks.tokenizer_rules import MERGES, UNIGRAMS, WORDS, replaced

TEXTS = [line.decode(errors="replace") for line in LINES]


@pytest.mark.parametrize("name", slow_but(["t5", "gemma"], [*UNIGRAMS, *MERGES]))
def test_ids_are_those_of_hugging_face(name):
    """In a graph and in Python, and in a tokenizer that is read from bytes."""
    model, rules, tokenizer = of_unigrams(name) if name in UNIGRAMS else of_merges(name)
    expected = [e.ids for e in library(model, *rules).encode_batch(TEXTS)]
    assert rows_of(*tokenizer.encode(tf.constant(LINES))) == expected
    assert [row.tolist() for row in tokenizer.encode_as_lists(LINES)] == expected
    again = Metaspace.from_bytes(tokenizer.to_bytes())
    assert [row.tolist() for row in again.encode_as_lists(LINES[:50])] == expected[:50]


@pytest.mark.parametrize("name", slow_but(["t5", "gemma"], [*UNIGRAMS, *MERGES]))
def test_decoded_texts_are_the_texts(name):
    tokenizer = (of_unigrams if name in UNIGRAMS else of_merges)(name)[2]
    texts = ["the cat's 3 dogs", "naïve café", "漢字"]
    if name in MERGES:
        texts += ["a  b ", "\n\t", "🫠 ẞ", "ᚠ"]  # the last by its bytes
    texts = [text.lower() if name == "albert" else text for text in texts]
    rows = tokenizer.encode_as_lists(texts)
    known = [i for i, row in enumerate(rows) if tokenizer.unk_id not in row]
    decoded = tokenizer.decode_as_strings(rows)
    expected = [text.replace("ï", "i").replace("é", "e") for text in texts]
    texts = expected if name == "albert" else texts
    assert len(known) >= 2 and [decoded[i] for i in known] == [texts[i] for i in known]
    ids = tf.ragged.constant([row.tolist() for row in rows]).to_tensor(1)  # a special token
    assert [text.decode() for text in tokenizer.decode(ids).numpy()] == decoded


def test_earlier_merges_come_first():
    vocabulary = {piece: i for i, piece in enumerate(["<unk>", *"abcd", "bc", "ab", "cd", "abcd"])}
    merges = ["b c", "a b", "c d", "ab cd"]
    tokenizer = Metaspace(vocabulary, merges, unk_id=0)
    model = {"type": "BPE", "vocab": vocabulary, "merges": [merge.split(" ") for merge in merges]}
    texts = ["abcd", "abab", "cdab", "ab"]
    expected = [e.ids for e in library(model, None, None).encode_batch(texts)]
    assert rows_of(*tokenizer.encode(texts)) == expected
    assert [row.tolist() for row in tokenizer.encode_as_lists(texts)] == expected


@pytest.mark.parametrize("crosses", [True, False])
def test_words_are_merged_together_where_a_piece_holds_two(crosses):
    pieces = ["<unk>", "▁", "a", "b", "▁b", *["a▁b"] * crosses]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    merges = ["▁ b", *["a ▁b"] * crosses]
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    tokenizer = Metaspace(vocabulary, merges, normalizer=spaces, unk_id=0)
    model = {"type": "BPE", "vocab": vocabulary, "merges": [merge.split(" ") for merge in merges]}
    texts = ["a b  b ", " ba b   b", "b a bb", ""]
    expected = [e.ids for e in library(model, spaces, None).encode_batch(texts)]
    assert (5 in expected[0]) == crosses
    assert rows_of(*tokenizer.encode(texts)) == expected
    assert [row.tolist() for row in tokenizer.encode_as_lists(texts)] == expected


def test_equal_scores_give_the_longest_last_piece():
    """As in the library, where sums of scores are exact."""
    pieces = [["<unk>", 0.0], ["▁", -1.0], ["a", -1.125], ["aa", -2.375], ["aaa", -2.75]]
    tokenizer = Metaspace(pieces, pre_tokenizer=WORDS, unk_id=0)
    model = {"type": "Unigram", "vocab": pieces, "unk_id": 0}
    text = "aaaaaaaaaaa"
    expected = library(model, None, WORDS).encode(text).ids
    assert tokenizer.encode([text])[0].numpy()[0].tolist() == expected
    assert tokenizer.encode_as_lists([text])[0].tolist() == expected


def test_scores_are_rounded_so_that_equal_sums_stay_equal():
    """Sums of a hundred of the scores themselves would differ by the order of the pieces."""
    scores = {"<unk>": 0.0, "▁": -2.3, "a": -6.17, "aa": -7.91, "aaa": -9.43}
    rounded = [[piece, round(score * 2**12) / 2**12] for piece, score in scores.items()]
    tokenizer = Metaspace([*map(list, scores.items())], pre_tokenizer=WORDS, unk_id=0)
    model = {"type": "Unigram", "vocab": rounded, "unk_id": 0}
    text = "a" * 100
    expected = library(model, None, WORDS).encode(text).ids
    assert rows_of(*tokenizer.encode([text])) == [expected]
    assert tokenizer.encode_as_lists([text])[0].tolist() == expected


def test_unknown_rules_and_pieces_are_refused():
    pieces = [["<unk>", 0.0], ["▁", -1.0]]
    with pytest.raises(ValueError, match="its normaliser Nmt is not known"):
        Metaspace(pieces, None, {"type": "Nmt"}, unk_id=0)
    with pytest.raises(ValueError, match="it splits words by \\['Whitespace'\\]"):
        Metaspace(pieces, pre_tokenizer={"type": "Whitespace"}, unk_id=0)
    with pytest.raises(ValueError, match="which a graph may read in another way"):
        Metaspace(pieces, None, replaced("(?=a)", "", "Regex"), unk_id=0)
    with pytest.raises(ValueError, match="`vocabulary` must be distinct pieces of one id each"):
        Metaspace([*pieces, ["▁", -2.0]], unk_id=0)
    with pytest.raises(ValueError, match="`unk_id` must be one of the 2 ids, or None"):
        Metaspace(pieces, unk_id=2)
