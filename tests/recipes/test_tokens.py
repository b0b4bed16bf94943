"""Token ids are made once, and made again for another text."""

import dataclasses

import numpy as np
import pytest
from recipe_runs import parse

from recipes.files import digest
from recipes.text.corpus import Corpus, train_on_sentences
from recipes.text.tokens import FILE_NAME, TOKENIZER, concatenate_rows, split_rows
from recipes.translate.parallel_text import ParallelCorpus

SPLITS = {"train": "to be or not to be\n" * 3, "valid": "to be", "test": "not to be\n"}
PAIRS = {
    "train": [("a bc", "d"), ("", "ef g"), ("c", "a")],
    "val": [("b", "gg f")],
    "test": [("x", "y")],
}
OPTIONS = parse("language_model")


def corpus(directory, splits=SPLITS, options=OPTIONS):
    return Corpus.load("text", splits, dataclasses.replace(options, out=str(directory)))


def record_training(monkeypatch):
    """A list that receives the arguments of every later training of a tokenizer."""
    trained = []

    def spy(*arguments):
        trained.append(arguments)
        return train_on_sentences(*arguments)

    for name in ("text.corpus", "translate.parallel_text"):
        monkeypatch.setattr(f"recipes.{name}.train_on_sentences", spy)
    return trained


def test_saved_tokens_are_read_again(tmp_path, monkeypatch):
    first = corpus(tmp_path)
    assert not any(tmp_path.iterdir())  # until they are saved, the directory is free
    first.tokens.save()
    trained = record_training(monkeypatch)
    again = corpus(tmp_path)
    assert not trained
    for split in SPLITS:
        np.testing.assert_array_equal(again.ids[split], first.ids[split])
    assert (again.characters, again.tokens.vocabulary_size) == (
        first.characters,
        first.tokens.vocabulary_size,
    )
    assert again.tokens.tokenizer.vocabulary() == first.tokens.tokenizer.vocabulary()


def test_saved_pairs_keep_their_rows(tmp_path, monkeypatch):
    options = dataclasses.replace(OPTIONS, out=str(tmp_path))
    first = ParallelCorpus.load(PAIRS, options)
    first.tokens.save()
    trained = record_training(monkeypatch)
    again = ParallelCorpus.load({**PAIRS, "test": []}, options)
    assert not trained
    for split in ("train", "val"):
        for side in (0, 1):
            rows = first.tokens.tokenizer.encode_as_lists([pair[side] for pair in PAIRS[split]])
            assert [row.tolist() for row in again.ids[split][side]] == [
                row.tolist() for row in rows
            ]
    assert again.tokens.vocabulary_size == first.tokens.vocabulary_size == 4 + len(" abcdefg")


@pytest.mark.parametrize(
    "splits, options",
    [
        ({**SPLITS, "valid": "to bo"}, OPTIONS),
        ({**SPLITS, "valid": "to b", "test": "enot to be\n"}, OPTIONS),  # the same, cut elsewhere
        (SPLITS, dataclasses.replace(OPTIONS, vocabulary_size=7)),
    ],
)
def test_tokens_of_another_text_are_made_anew(tmp_path, monkeypatch, splits, options):
    corpus(tmp_path).tokens.save()
    trained = record_training(monkeypatch)
    found = corpus(tmp_path, splits, options)
    assert len(trained) == 1
    assert len(found.ids["valid"]) == len(splits["valid"])


def test_several_processes_need_tokens_that_one_has_made(tmp_path):
    shared = dataclasses.replace(OPTIONS, strategy="multi_worker")
    with pytest.raises(ValueError, match="There is no file .*tokens.npz; .* --prepare"):
        corpus(tmp_path, options=shared)
    corpus(tmp_path).tokens.save()
    assert corpus(tmp_path, options=shared).tokens.vocabulary_size == 4 + len(set("to be or not\n"))
    with pytest.raises(ValueError, match="has the tokens of another text or tokenizer"):
        corpus(tmp_path, {**SPLITS, "test": "no"}, shared)
    content = (tmp_path / FILE_NAME).read_bytes()
    (tmp_path / FILE_NAME).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="is damaged"):
        corpus(tmp_path, options=shared)
    assert (tmp_path / TOKENIZER).exists()


def test_split_rows_undoes_concatenate_rows():
    for lengths in ([], [0], [3, 0, 0, 2], [0, 5], [1, 0]):
        rows = [np.arange(n, dtype="int32") + 7 * n for n in lengths]
        found = split_rows(*concatenate_rows(rows))
        assert [row.tolist() for row in found] == [row.tolist() for row in rows]
    assert digest("a", "b") != digest("ab", "") != digest("", "ab")
