"""Token ids are made once, and never those of another text."""

from types import SimpleNamespace

import numpy as np
import pytest

from recipes.text.corpus import Corpus, tokenizer_of
from recipes.text.tokens import FILE_NAME, TOKENIZER, digest, joined, parted
from recipes.translate.parallel_corpus import ParallelCorpus

SPLITS = {"train": "to be or not to be\n" * 3, "valid": "to be", "test": "not to be\n"}
PAIRS = {
    "train": [("a bc", "d"), ("", "ef g"), ("c", "a")],
    "val": [("b", "gg f")],
    "test": [("x", "y")],
}
OPTIONS = SimpleNamespace(
    tokenizer="characters", vocabulary_size=None, prepare=False, strategy="none"
)


def corpus(directory, splits=SPLITS, options=OPTIONS):
    return Corpus.of("text", splits, options, str(directory))


def made_again(monkeypatch):
    """What tokenizers are trained on from now on."""
    trained = []

    def spy(*arguments):
        trained.append(arguments)
        return tokenizer_of(*arguments)

    for name in ("text.corpus", "translate.parallel_corpus"):
        monkeypatch.setattr(f"recipes.{name}.tokenizer_of", spy)
    return trained


def test_kept_tokens_are_those_that_were_made(tmp_path, monkeypatch):
    first = corpus(tmp_path)
    assert not any(tmp_path.iterdir())  # until they are saved, the directory is free
    first.tokens.save()
    trained = made_again(monkeypatch)
    again = corpus(tmp_path)
    assert not trained
    for split in SPLITS:
        np.testing.assert_array_equal(again.ids[split], first.ids[split])
    assert (again.characters, again.tokens.vocabulary_size) == (
        first.characters,
        first.tokens.vocabulary_size,
    )
    assert again.tokens.tokenizer.vocabulary() == first.tokens.tokenizer.vocabulary()


def test_pairs_are_kept_in_their_rows(tmp_path, monkeypatch):
    first = ParallelCorpus.of(PAIRS, OPTIONS, str(tmp_path))
    first.tokens.save()
    trained = made_again(monkeypatch)
    again = ParallelCorpus.of({**PAIRS, "test": []}, OPTIONS, str(tmp_path))
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
        (SPLITS, SimpleNamespace(**{**vars(OPTIONS), "vocabulary_size": 7})),
    ],
)
def test_tokens_of_something_else_are_made_again(tmp_path, monkeypatch, splits, options):
    corpus(tmp_path).tokens.save()
    trained = made_again(monkeypatch)
    found = corpus(tmp_path, splits, options)
    assert len(trained) == 1
    assert len(found.ids["valid"]) == len(splits["valid"])


def test_several_processes_need_tokens_that_one_has_made(tmp_path):
    shared = SimpleNamespace(**{**vars(OPTIONS), "strategy": "multi_worker"})
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


def test_rows_of_any_length_are_parted_as_they_were_joined():
    for lengths in ([], [0], [3, 0, 0, 2], [0, 5], [1, 0]):
        rows = [np.arange(n, dtype="int32") + 7 * n for n in lengths]
        found = parted(*joined(rows))
        assert [row.tolist() for row in found] == [row.tolist() for row in rows]
    assert digest("a", "b") != digest("ab", "") != digest("", "ab")
