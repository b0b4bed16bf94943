"""Batches of a corpus in files: those of the same sentences in lists, a part in each process."""

import keras
import numpy as np
import pytest
from sentences import sentence_pairs

from keras_attn import text
from keras_attn.text.batches import length_order
from keras_attn.text.batches import permutation as epoch_tables
from keras_attn.text.batches.datasets import Rows

PAIRS = sentence_pairs(300)
V = 1400


class Anything:
    vocabulary_size, tool = V, {}


def write(folder, sides):
    """Write items in three shards, and return the `Documents`."""
    items = [*zip(*sides, strict=True)]
    names = []
    for part, few in enumerate((items[:7], items[7:200], items[200:])):
        with text.TokenWriter(str(folder), "train", part, Anything(), len(sides)) as shard:
            for item in few:
                shard.add(*item)
        names.append(shard.name)
    text.Characters("a").save(folder / "tokenizer.model")
    text.Manifest.make(str(folder), {"train": names}, {}, {})
    return text.TokenFiles(folder).documents


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return write(tmp_path_factory.mktemp("pairs"), PAIRS)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write(tmp_path_factory.mktemp("texts"), PAIRS[1:])


def of_lists_and_files(name, pairs, texts, **arguments):
    lists = {"pairs": PAIRS, "packed pairs": PAIRS, "packed texts": (None, PAIRS[1])}[name]
    files = {"pairs": [pairs], "packed pairs": [pairs], "packed texts": (None, texts)}[name]
    sizes = (
        {"tokens_per_batch": 200}
        if name == "pairs"
        else {"tokens_per_batch": 160, "row_length": 32}
    )
    cls = text.TokenBatches if name == "pairs" else text.PackedBatches
    return [cls(*sentences, **sizes, **arguments) for sentences in (lists, files)]


KINDS = ("pairs", "packed pairs", "packed texts")


def assert_same(one, other):
    keras.tree.map_structure(np.testing.assert_array_equal, one, other)


@pytest.mark.slow
@pytest.mark.parametrize("name, shuffle", [*zip(KINDS, (True, False, True), strict=True)])
def test_an_epoch_with_a_table_has_the_batches_of_one_without(
    name, shuffle, pairs, texts, monkeypatch
):
    options = {"shuffle": shuffle, "seed": 3}
    kept, _ = of_lists_and_files(name, pairs, texts, **options)
    monkeypatch.setattr(epoch_tables, "IN_MEMORY", len(PAIRS[0]) - 1)
    computed, _ = of_lists_and_files(name, pairs, texts, **options)
    for epoch in (2, 0):
        for index in range(len(kept)):
            assert_same(kept.batch(epoch, index), computed.batch(epoch, index))


@pytest.mark.parametrize("name, in_memory", [*zip(KINDS, (100, 2**20, 100), strict=True)])
def test_files_give_the_batches_of_lists(name, in_memory, pairs, texts, monkeypatch):
    """Also where the order of the lengths is in a file, made of blocks."""
    monkeypatch.setattr(length_order, "IN_MEMORY", in_memory)
    monkeypatch.setattr(length_order, "_BLOCK", in_memory)
    lists, files = of_lists_and_files(name, pairs, texts, seed=3)
    assert len(lists) == len(files) > 5
    for epoch, index in [(0, 0), (0, 3), (4, len(lists) - 1), (4, 2)]:
        assert_same(files.batch(epoch, index), lists.batch(epoch, index))


@pytest.mark.parametrize("name, processes", [*zip(KINDS, (4, 2, 2), strict=True)])
def test_processes_make_the_rows_of_one(name, processes, pairs, texts):
    _, files = of_lists_and_files(name, pairs, texts)
    for index in range(0, len(files), 5):
        whole = Rows(4).cut(files.batch(1, index))
        parts = [files.batch(1, index, Rows(4, processes, part)) for part in range(processes)]
        assert_same(keras.tree.map_structure(lambda *x: np.concatenate(x), *parts), whole)


def test_a_process_reads_its_own_rows_only(pairs, monkeypatch):
    files, read = text.TokenBatches(pairs, tokens_per_batch=200), []
    monkeypatch.setattr(
        type(pairs), "item", lambda self, i, item=type(pairs).item: read.append(i) or item(self, i)
    )
    files.batch(0, 0)
    whole, read[:] = [*read], []
    for part in range(2):
        files.batch(0, 0, Rows(2, 2, part))
    assert read == whole and len(whole) > 2


def test_pairs_that_are_too_long_are_named_by_line(pairs, texts):
    longest = int(np.argmax([max(len(s), len(t)) for s, t in zip(*PAIRS, strict=True)]))
    with pytest.raises(ValueError, match=f"pair {longest + 1} takes"):
        text.TokenBatches(pairs, tokens_per_batch=4, multiple=1)
    for wrong in ((texts,), (None, pairs), (pairs, PAIRS[1])):
        with pytest.raises(ValueError, match="documents of a corpus of pairs"):
            text.TokenBatches(*wrong)


@pytest.mark.parametrize("sides, name", [(([], []), "sources"), (([],), "targets")])
def test_a_corpus_without_documents_is_refused(tmp_path, sides, name):
    documents = write(tmp_path, sides)
    with pytest.raises(ValueError, match=f"`{name}` must have at least one document"):
        text.PackedBatches(**{"sources": None, name: documents}, row_length=32)
