"""Folders with a SentencePiece model and no `tokenizer.json`: the ids of each class.

Expected are the ids of the SentencePiece library, moved as transformers moves them.
"""

import functools
import json

import pytest
import sentencepiece
import tensorflow as tf
from library_tokenizers import LINES, library, trained
from marks import slow_but
from token_rows import rows_of

from keras_attn.convert.hugging_face.tokenizer import read_tokenizer
from recipes.benchmarks.tokenizer_rules import ALBERT, WORDS, precompiled, sequence

TEXTS = [line.decode(errors="replace") for line in LINES]
FAIRSEQ = ["<s>", "<pad>", "</s>", "<unk>"]
CODES = ["de_DE", "en_XX", "fr_XX"]


def model(model_type="unigram", **options):
    """Return the bytes of a model of the lines and the library's object for it."""
    content = trained(model_type, **options)
    return content, sentencepiece.SentencePieceProcessor(model_proto=content)


def of_pegasus():
    return model(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)


def of_deberta():
    pieces = {"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]"}
    return model(pad_id=0, bos_id=1, eos_id=2, unk_id=3, unk_piece="[UNK]", **pieces)


def of_albert():
    return model(pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols="[CLS],[SEP]")


# The class, its model, how far a piece is moved, the id of unknown text, and by the number of
# pieces: special tokens before and after a text, and texts of ids.
CLASSES = {
    "xlm-r": (
        "XLMRobertaTokenizer",
        model,
        1,
        3,
        lambda n: ([0], [2], {**dict(zip(FAIRSEQ, range(4), strict=True)), "<mask>": n + 1}),
    ),
    "camembert": (
        "CamembertTokenizer",
        model,
        4,
        3,
        lambda n: ([5], [6], {"<s>NOTUSED": 0, "<pad>": 1, "<s>": 5, "</s>": 6, "<mask>": n + 4}),
    ),
    "mbart": (
        "MBartTokenizer",
        model,
        1,
        3,
        lambda n: ([], [2, n + 2], {"de_DE": n + 1, "en_XX": n + 2, "<mask>": n + 4}),
    ),
    "mbart-50": (
        "MBart50Tokenizer",
        model,
        1,
        3,
        lambda n: ([n + 2], [2], {"de_DE": n + 1, "en_XX": n + 2, "<mask>": n + 4}),
    ),
    "nllb": (
        "NllbTokenizer",
        functools.partial(model, model_type="bpe"),
        1,
        3,
        lambda n: ([n + 3], [2], {"fr_XX": n + 3, "<mask>": n + 4}),
    ),
    "pegasus": (
        "PegasusTokenizer",
        of_pegasus,
        103,
        105,
        lambda n: ([], [1], {"<pad>": 0, "<mask_1>": 2, "<unk_2>": 4, "<unk_102>": 104}),
    ),
    "deberta": (
        "DebertaV2Tokenizer",
        of_deberta,
        0,
        3,
        lambda n: ([1], [2], {"[PAD]": 0, "[MASK]": n}),
    ),
}


def folder_of(path, content, **settings):
    (path / "sentencepiece.bpe.model").write_bytes(content)
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path


def assert_has_ids(tokenizer, expected, start, end):
    rows = [row.tolist() for row in tokenizer.encode_as_lists(TEXTS)]
    assert rows == expected
    around = [start + row + end for row in expected[:40]]
    assert rows_of(*tokenizer.encode(tf.constant(LINES[:40]))) == around


@pytest.mark.parametrize("name", slow_but(["camembert", "mbart"], CLASSES))
def test_ids_are_those_of_the_model_in_the_order_of_the_class(name, tmp_path):
    class_name, made, shift, unknown, around = CLASSES[name]
    content, read = made()
    settings = {"tokenizer_class": class_name, "extra_special_tokens": CODES}
    if name == "nllb":
        settings["src_lang"] = "fr_XX"
    if not name.startswith(("mbart", "nllb")):
        del settings["extra_special_tokens"]
    tokenizer = read_tokenizer(folder_of(tmp_path, content, **settings))
    start, end, names = around(read.get_piece_size())
    rows = read.encode(TEXTS)
    expected = [[unknown if i == read.unk_id() else i + shift for i in row] for row in rows]
    assert any(unknown in row for row in expected)
    assert_has_ids(tokenizer, expected, start, end)
    vocabulary = tokenizer.vocabulary()
    assert {vocabulary[i]: i for i in names.values()} == names
    assert tokenizer.vocabulary_size == max(len(vocabulary), *(i + 1 for i in names.values()))
    for token, i in names.items():
        assert tokenizer.decode_as_strings([[i]]) in ([""], ["\ufffd"]), token


def test_m2m100_has_the_ids_of_its_vocabulary(tmp_path):
    content, read = model()
    size = read.get_piece_size()
    pieces = [read.id_to_piece(i) for i in range(3, size)]
    ids = {token: i for i, token in enumerate([*FAIRSEQ, *reversed(pieces)])}
    (tmp_path / "vocab.json").write_text(json.dumps(ids))
    settings = {"tokenizer_class": "M2M100Tokenizer", "src_lang": "af"}
    tokenizer = read_tokenizer(folder_of(tmp_path, content, **settings))
    expected = [
        [3 if i == read.unk_id() else ids[read.id_to_piece(i)] for i in row]
        for row in read.encode(TEXTS)
    ]
    assert_has_ids(tokenizer, expected, [len(ids)], [2])  # the first of its codes
    assert tokenizer.vocabulary()[len(ids) : len(ids) + 2] == ["__af__", "__am__"]


@pytest.mark.slow
def test_albert_has_the_rules_of_its_class(tmp_path):
    content, read = of_albert()
    settings = {"tokenizer_class": "AlbertTokenizer"}
    tokenizer = read_tokenizer(folder_of(tmp_path, content, **settings))
    pieces = [[read.id_to_piece(i), read.get_score(i)] for i in range(read.get_piece_size())]
    rules = sequence("normalizers", *ALBERT, precompiled(content)), WORDS
    theirs = library({"type": "Unigram", "vocab": pieces, "unk_id": 1}, *rules)
    expected = [encoding.ids for encoding in theirs.encode_batch(TEXTS)]
    names = [token for token, _ in pieces]
    assert_has_ids(tokenizer, expected, [names.index("[CLS]")], [names.index("[SEP]")])


def test_classes_whose_tokens_are_not_known_have_no_graph(tmp_path):
    content, _ = model()
    for class_name, sentence in {
        "BarthezTokenizer": "special tokens of the class 'Barthez' are not known",
        "MBartTokenizer": "do not name the code 'en_XX' among",
        "AlbertTokenizer": r"lacks a piece of '<pad>', '\[CLS\]' and '\[SEP\]'",
    }.items():
        folder = folder_of(tmp_path, content, tokenizer_class=class_name)
        with pytest.warns(UserWarning, match=f"has no graph: .*{sentence}"):
            assert read_tokenizer(folder) is None
    (tmp_path / "vocab.json").write_text('{"<s>": 0}')
    folder = folder_of(tmp_path, content, tokenizer_class="M2M100Tokenizer")
    with pytest.warns(UserWarning, match="has no graph: 'vocab.json' lacks the piece"):
        assert read_tokenizer(folder) is None
