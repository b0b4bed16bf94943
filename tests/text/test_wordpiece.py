"""WordPiece, against Hugging Face's library and against the rules of BERT."""

import functools
import json
import re

import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from marks import slow
from token_rows import rows_of
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers
from tricky_lines import tricky_lines

from keras_attn.text import Template, WordPiece
from keras_attn.text.tokenizers.recent_characters import RECENT

LINES = tricky_lines(450)
TEXTS = [line.decode(errors="replace") for line in LINES]
MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def theirs(**options):
    """Return Hugging Face's tokenizer, trained on the lines themselves."""
    model = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    model.normalizer = normalizers.BertNormalizer(**options)
    model.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=900, special_tokens=MARKS, show_progress=False)
    rare = f"[{RECENT}\U0002b820-\U0002b91f]"  # which no vocabulary has
    model.train_from_iterator([re.sub(rare, "", text) for text in TEXTS], trainer)
    model.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return model


def pieces_of(model):
    vocabulary = json.loads(model.to_str())["model"]["vocab"]
    return sorted(vocabulary, key=vocabulary.get)


OPTIONS = {
    "lower": ({"lowercase": True}, (True, None)),
    "cased": ({"lowercase": False}, (False, None)),
    "accents": ({"lowercase": True, "strip_accents": False}, (True, False)),
}


@functools.cache
def trained(name):
    theirs_has, ours_has = OPTIONS[name]
    model = theirs(**theirs_has)
    return model, WordPiece(pieces_of(model), *ours_has)


@pytest.fixture(params=["lower", "cased", slow("accents")])
def both(request):
    return trained(request.param)


@pytest.fixture
def lower():
    return trained("lower")


def test_ids_and_texts_are_those_of_hugging_face(both):
    """In a graph and in Python; a text with an unknown piece is decoded otherwise."""
    model, tokenizer = both
    ids, lengths = tokenizer.encode(tf.constant(LINES))
    rows = rows_of(ids, lengths)
    assert rows == [encoding.ids for encoding in model.encode_batch(TEXTS)]
    assert [row.tolist() for row in tokenizer.encode_as_lists(LINES)] == [r[1:-1] for r in rows]
    model.decoder = tokenizers.decoders.WordPiece(prefix="##")
    for row, text in zip(rows, tokenizer.decode(ids).numpy(), strict=True):
        if tokenizer.unk_id not in row:
            assert text.decode() == model.decode(row)


@pytest.mark.parametrize("max_length", [3, 4, 8])
def test_pairs_are_those_of_hugging_face(lower, max_length):
    model, tokenizer = lower
    first, second = TEXTS[380:420], TEXTS[400:440]
    model.enable_truncation(max_length)
    expected = model.encode_batch([*zip(first, second, strict=True)])
    model.no_truncation()
    ids, lengths, segments = tokenizer.encode_pair(first, second, max_length)
    assert rows_of(ids, lengths) == [encoding.ids for encoding in expected]
    assert rows_of(segments, lengths) == [encoding.type_ids for encoding in expected]
    rows = [tokenizer._split_in_python(texts) for texts in (first, second)]
    in_python, types = tokenizer.template.around_pair(*rows, max_length)
    assert [row.tolist() for row in in_python] == rows_of(ids, lengths)
    assert [row.tolist() for row in types] == rows_of(segments, lengths)


def test_padding_and_segments_end_with_zeros():
    """The names of special tokens in a text are text."""
    tokenizer = WordPiece([*MARKS, "a", "b", "[", "]", "sep"])
    ids, lengths, segments = tokenizer.encode_pair(["a b", ""], ["b", "a"])
    assert ids.numpy().tolist() == [[2, 5, 6, 3, 6, 3], [2, 3, 5, 3, 0, 0]]
    assert segments.numpy().tolist() == [[0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 0, 0]]
    assert lengths.numpy().tolist() == [6, 4]
    assert tokenizer.encode(["[SEP]"])[0].numpy().tolist() == [[2, 7, 9, 8, 3]]
    template = Template(start=(2, 4), end=(3, 3))
    tokenizer = WordPiece([*MARKS, "a"], template=template)
    assert tokenizer.encode(["a"])[0].numpy().tolist() == [[2, 4, 5, 3, 3]]


def test_max_length_must_leave_room_for_the_special_tokens():
    tokenizer = WordPiece([*MARKS, "a"])
    assert tokenizer.encode(["a"], max_length=2)[0].numpy().tolist() == [[2, 3]]
    with pytest.raises(ValueError, match="at least 2. Received: max_length=1"):
        tokenizer.encode(["a"], max_length=1)
    with pytest.raises(ValueError, match="at least 3. Received: max_length=2"):
        tokenizer.encode_pair(["a"], ["a"], max_length=2)


def test_decoding_joins_pieces_into_words():
    tokenizer = WordPiece([*MARKS, "the", "cat", "##s", ".", "'"])
    ids, _ = tokenizer.encode(["the cats . ' zebra"])
    expected = "the cats. ' \ufffd"
    assert tokenizer.decode(ids).numpy()[0].decode() == expected
    assert tokenizer.decode_as_strings(ids.numpy()) == [expected]
    assert tokenizer.decode(np.array([[2, 4, 5, 99, 3, 5]])).numpy()[0].decode() == "the \ufffd"


@pytest.mark.parametrize(
    "vocabulary, sentence",
    [
        (["a", *MARKS, "a"], "Received: 7 pieces, 6 distinct"),
        (["[PAD]", "[UNK]", "[CLS]", "a"], r"without \['\[SEP\]'\]"),
    ],
)
def test_bad_vocabularies_are_refused(vocabulary, sentence):
    with pytest.raises(ValueError, match=sentence):
        WordPiece(vocabulary)
