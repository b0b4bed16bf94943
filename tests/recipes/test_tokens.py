"""Token ids are made once, and made again for another text."""

import dataclasses
import os
import shutil

import numpy as np
import pytest
from recipe_runs import parse

from keras_attn import text
from recipes.common.files import digest
from recipes.common.settings import check_out
from recipes.text.corpus import Corpus, train_on_sentences
from recipes.text.data import read_text
from recipes.text.tokens import FOLDER
from recipes.translate.parallel_text import ParallelCorpus
from recipes.translate.task import Task

SPLITS = {"train": "to be or not to be\n" * 3, "valid": "to be", "test": "not to be\n"}
PAIRS = {
    "train": [("a bc", "d"), ("", "ef g"), ("c", "a")],
    "val": [("b", "gg f")],
    "test": [("x", "y")],
}
OPTIONS = parse("language_model")


def corpus(directory, splits=SPLITS, options=OPTIONS):
    data = directory / "data"
    data.mkdir(exist_ok=True)
    for split, part in splits.items():
        (data / f"{split}.txt").write_text(part)
    options = dataclasses.replace(options, out=str(directory / "out"))
    return Corpus.load(read_text(str(data)), options)


def pairs(directory, splits=PAIRS):
    options = dataclasses.replace(OPTIONS, out=str(directory))
    return ParallelCorpus.load(Task("made up", splits, "bleu", {"a": "0"}), options)


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
    assert not (tmp_path / "out").exists()  # until they are saved, the directory is free
    first.tokens.save()
    trained = record_training(monkeypatch)
    again = corpus(tmp_path)
    assert not trained
    for split in SPLITS:
        np.testing.assert_array_equal(again.ids[split][:], first.ids[split][:])
    assert (again.characters, again.tokens.vocabulary_size) == (
        first.characters,
        first.tokens.vocabulary_size,
    )
    assert again.characters == {split: len(part) for split, part in SPLITS.items()}
    assert again.tokens.tokenizer.vocabulary() == first.tokens.tokenizer.vocabulary()
    beside = text.load(tmp_path / "out" / "tokenizer.model")  # the run's model.keras
    assert beside.vocabulary() == first.tokens.tokenizer.vocabulary()


def test_a_corpus_that_is_not_saved_leaves_nothing(tmp_path):
    text_corpus = corpus(tmp_path)
    directory = text_corpus.tokens.directory
    assert os.path.exists(directory)
    text_corpus.tokens.discard()
    assert not os.path.exists(directory) and not (tmp_path / "out").exists()


def test_saved_pairs_keep_their_rows(tmp_path, monkeypatch):
    first = pairs(tmp_path)
    first.tokens.save()
    trained = record_training(monkeypatch)
    again = pairs(tmp_path, {**PAIRS, "test": []})
    assert not trained
    for split in ("train", "val"):
        ids = [[side.tolist() for side in pair] for pair in again.ids[split]]
        rows = map(first.tokens.tokenizer.encode_as_lists, PAIRS[split])
        assert ids == [[side.tolist() for side in pair] for pair in rows]
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
    text_corpus = corpus(tmp_path, splits, options)
    assert len(trained) == 1
    assert len(text_corpus.ids["valid"]) == len(splits["valid"])
    text_corpus.tokens.save()
    assert corpus(tmp_path, splits, options).tokens.manifest == text_corpus.tokens.manifest


def test_several_processes_need_tokens_that_one_has_made(tmp_path):
    shared = dataclasses.replace(OPTIONS, strategy="multi_worker")
    with pytest.raises(ValueError, match="There is no folder .*tokens; .* --prepare"):
        corpus(tmp_path, options=shared)
    corpus(tmp_path).tokens.save()
    assert corpus(tmp_path, options=shared).tokens.vocabulary_size == 4 + len(set("to be or not\n"))
    with pytest.raises(ValueError, match="has tokens of another text or tokenizer; make"):
        corpus(tmp_path, {**SPLITS, "test": "no"}, shared)
    path = tmp_path / "out" / FOLDER / "part-00000-valid.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="valid.bin .* it has 9 bytes, not 10; .*; make it in one"):
        corpus(tmp_path, options=shared)


def prepared(folder, splits=("train", "valid", "test")):
    """A corpus that no recipe has made, in two shards a split."""
    tokenizer, names = text.Characters("abc"), {}
    for split in splits:
        for part in range(2):
            with text.TokenWriter(str(folder), split, part, tokenizer) as shard:
                shard.add([4, 5, 6, 3], characters=3)
            names.setdefault(split, []).append(shard.name)
    tokenizer.save(folder / "tokenizer.model")
    text.Manifest.make(str(folder), names, {"texts": "0"}, {"cleaned": True})
    return str(folder)


def test_a_prepared_corpus_is_read_where_it_is(tmp_path):
    folder, options = (
        prepared(tmp_path / "c"),
        dataclasses.replace(OPTIONS, out=str(tmp_path / "o")),
    )
    text_corpus = Corpus.load(read_text(folder), options)
    assert text_corpus.ids["train"][:].tolist() == [4, 5, 6, 3] * 2
    assert (
        text_corpus.characters_per_token("test") == 3 / 4
        and text_corpus.tokens.vocabulary_size == 7
    )
    text_corpus.tokens.save()
    assert os.listdir(tmp_path / "o") == ["tokenizer.model"]
    identity = read_text(folder).identity(options)
    shutil.rmtree(folder)
    prepared(tmp_path / "c", splits=("train", "valid", "test", "more"))
    assert read_text(folder).identity(options) != identity


def test_a_run_of_an_earlier_version_is_refused(tmp_path):
    (tmp_path / "tokens.npz").touch()
    with pytest.raises(ValueError, match="earlier version, which kept its tokens in .*tokens.npz"):
        check_out(str(tmp_path))


def test_a_digest_knows_where_parts_end():
    assert digest("a", "b") != digest("ab", "") != digest("", "ab")
