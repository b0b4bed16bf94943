"""Marian's tokenizer, against its two SentencePiece models and its vocabulary."""

import pytest
import tensorflow as tf
from token_rows import rows_of
from tricky_lines import tricky_lines

from keras_attn.text import Marian, SentencePiece

LINES = [line for line in tricky_lines(500) if b"\0" not in line]
TEXTS = [line.decode(errors="replace") for line in LINES]
CODES = [">>de<<", ">>pt_br<<"]
CODED = [
    ">>de<< the cat", ">>de<<the cat", " >>de<< the cat", ">>de< <the cat", ">>fr<< the cat",
    ">>de<< >>de<< a", ">><<", ">>a\nb<< c", ">>de<<", "<<>>de<<", ">> de<<", ">>pt_br<<",
]  # fmt: skip


@pytest.fixture(scope="module")
def models():
    # Long runs of one letter have segmentations of equal probability.
    latin = [text for text in TEXTS if text and max(text) < "ɐ" and len(text) < 40]
    half = len(latin) // 2
    return [SentencePiece.train(part * 2, 500) for part in (latin[half:], latin[: half + 9])]


@pytest.fixture(scope="module")
def tokenizer(models):
    pieces = [piece for model in models for piece in model.vocabulary()[4:]]
    pieces = [*dict.fromkeys(["</s>", "<unk>", *pieces, *CODES]), "<pad>"]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    return Marian(*(model.to_bytes() for model in models), vocabulary)


def rule(tokenizer, model, text):
    """Return the ids of a text by Marian's rule."""
    code = []
    if text.startswith(">>") and "<<" in text:
        end = text.index("<<") + 2
        code, text = [text[:end]], text[end:]
    vocabulary = tokenizer.get_config()["vocabulary"]
    pieces = code + model._processor.encode(text, out_type=str)
    return [vocabulary.get(piece, vocabulary["<unk>"]) for piece in pieces] + [vocabulary["</s>"]]


def test_ids_are_those_of_the_rule(tokenizer, models):
    texts = TEXTS + CODED
    expected = [rule(tokenizer, models[0], text) for text in texts]
    assert rows_of(*tokenizer.encode(texts)) == expected
    assert [row.tolist() for row in tokenizer.encode_as_lists(texts)] == [r[:-1] for r in expected]
    unknown = [tokenizer.unk_id in row for row in expected]
    assert 0 < sum(unknown) < len(texts)
    assert tokenizer.encode(tf.constant([b">>\xff<<"]))[0].numpy().tolist() == [[1, 0]]


def test_sources_are_read_by_their_own_vocabulary(models):
    sides = [["</s>", "<unk>", "<pad>", *model.vocabulary()[4:]] for model in models]
    vocabularies = [{piece: i for i, piece in enumerate(dict.fromkeys(side))} for side in sides]
    tokenizer = Marian(*(model.to_bytes() for model in models), *vocabularies)
    sources = tokenizer.for_sources()
    assert [t.vocabulary_size for t in (sources, tokenizer)] == [*map(len, vocabularies)]
    ids = tokenizer.encode(["the cat"])[0]
    assert sources.decode(ids).numpy().tolist() == [b"the cat"]
    assert tokenizer.decode(ids).numpy().tolist() != [b"the cat"]
    assert sources.for_sources() is sources
    with pytest.raises(ValueError, match='a dict with the id 0 of "</s>".*the id 9'):
        Marian(*[models[0].to_bytes()] * 2, vocabularies[0], {**vocabularies[1], "</s>": 9})
    with pytest.raises(ValueError, match='a dict with the id 2 of "<pad>".*the id 9'):
        Marian(*[models[0].to_bytes()] * 2, vocabularies[0], {**vocabularies[1], "<pad>": 9})


def test_targets_are_encoded_by_the_other_model(tokenizer, models):
    targets = tokenizer.for_targets()
    expected = [rule(tokenizer, models[1], text) for text in TEXTS]
    assert rows_of(*targets.encode(TEXTS)) == expected
    assert expected != [rule(tokenizer, models[0], text) for text in TEXTS]


def test_decoding_joins_the_pieces_and_padding_starts_the_targets(tokenizer):
    targets = tokenizer.for_targets()
    sentence = "the cat's café"
    ids, _ = targets.encode([sentence])
    row = [[tokenizer.bos_id, *ids.numpy()[0], tokenizer.pad_id]]
    assert tokenizer.decode(row).numpy()[0].decode() == sentence
    assert tokenizer.decode_as_strings(row) == [sentence]
    assert tokenizer.bos_id == tokenizer.pad_id == tokenizer.vocabulary_size - 1
    assert (tokenizer.eos_id, tokenizer.unk_id) == (0, 1)
    ids, _ = tokenizer.encode(["the cat", ""])
    assert ids.numpy()[1].tolist() == [0] + [tokenizer.pad_id] * (ids.shape[1] - 1)


def test_a_vocabulary_without_marks_is_refused(models):
    proto = models[0].to_bytes()
    with pytest.raises(ValueError, match=r"`vocabulary` must be .*</s>. Received: .*'<pad>'"):
        Marian(proto, proto, {"</s>": 0, "<unk>": 1})
    with pytest.raises(ValueError, match="not a SentencePiece model"):
        Marian(b"junk", proto, {"</s>": 0, "<unk>": 1, "<pad>": 2})
