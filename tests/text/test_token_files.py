"""A corpus in files: what was written is read, and what was altered is refused."""

import json
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn import text
from keras_attn.text.corpus import array_files as checked_files
from keras_attn.text.corpus.array_files import ArrayFiles

TOKENIZER = text.Characters("abcdefghijklm")


def write(folder, parts, split="train", sides=1, tokenizer=TOKENIZER):
    """Write documents, a list for each shard, and return their names."""
    folder.mkdir(exist_ok=True)
    tokenizer.save(folder / "tokenizer.model")
    names = []
    for part, documents in enumerate(parts):
        with text.TokenWriter(str(folder), split, part, tokenizer, sides) as shard:
            for ids in documents:
                shard.add(*(ids if sides > 1 else [ids]), characters=2)
        names.append(shard.name)
    return names


def corpus(folder, parts, sides=1, tokenizer=TOKENIZER):
    names = write(folder, parts, "train", sides, tokenizer)
    text.Manifest.make(str(folder), {"train": names}, {"a.txt": "0"}, {"kind": "characters"})
    return str(folder)


def documents_of(lengths):
    ids = np.arange(sum(lengths)) % 11 + 4
    return np.split(ids, np.cumsum(lengths))[:-1]


PARTS = [documents_of(lengths) for lengths in ([3, 0, 5], [], [7], [0, 2, 1])]
WHOLE = np.concatenate([ids for part in PARTS for ids in part])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return corpus(tmp_path_factory.mktemp("corpus") / "c", PARTS)


def test_slices_are_those_of_the_joined_array(folder):
    files = text.TokenFiles(folder)
    assert len(files) == len(WHOLE) == 18
    for start in range(-19, 20, 2):
        assert start not in range(-18, 18) or files[start] == WHOLE[start]
        for stop in range(-19, 20, 2):
            ids = files[start:stop]
            assert ids.tolist() == WHOLE[start:stop].tolist() and ids.dtype == "int32"
            part = files.part(start, stop)
            assert len(part) == len(ids) and part[1:3].tolist() == ids[1:3].tolist()


def test_documents_are_read_as_they_were_written(folder):
    documents = text.TokenFiles(folder).documents
    expected = [ids.tolist() for part in PARTS for ids in part]
    assert [documents[i].tolist() for i in range(len(documents))] == expected
    assert documents[-1].tolist() == expected[-1]
    for start in range(7):
        for stop in range(start, 8):
            lengths = [[len(ids)] for ids in expected[start:stop]]
            assert documents.lengths(start, stop).tolist() == lengths


def test_pairs_keep_both_sides(tmp_path):
    pairs = [([4, 5], [6]), ([], [7, 8, 9]), ([4], [])]
    files = text.TokenFiles(corpus(tmp_path / "c", [pairs[:1], pairs[1:]], sides=2))
    documents = [tuple(side.tolist() for side in files.documents[i]) for i in range(3)]
    assert documents == pairs
    assert files.documents.lengths(0, 3).tolist() == [[2, 1], [0, 3], [1, 0]]


def test_two_bytes_hold_small_vocabularies_and_four_all_others(tmp_path):
    class Large:
        vocabulary_size, tool = 70_000, {"other": "1"}

    with text.TokenWriter(str(tmp_path), "train", 0, Large()) as shard:
        shard.add([69_999, 3])
    assert np.fromfile(tmp_path / "part-00000-train.bin", "<u4").tolist() == [69_999, 3]
    assert shard.facts.dtype == "<u4"
    names = write(tmp_path / "c", [[[4]]])
    assert np.fromfile(tmp_path / "c" / f"{names[0]}.bin", "<u2").tolist() == [4]


def test_an_error_while_writing_leaves_the_earlier_shard(tmp_path):
    (name,) = write(tmp_path / "c", [[[4, 5]]])
    before = {path.name: path.read_bytes() for path in (tmp_path / "c").iterdir()}
    with pytest.raises(ValueError, match=r"`ids` must be in \[0, 17\)"):
        write(tmp_path / "c", [[[6], [17]]])
    assert {path.name: path.read_bytes() for path in (tmp_path / "c").iterdir()} == before


def test_a_pair_with_a_wrong_side_is_not_written(tmp_path):
    with text.TokenWriter(str(tmp_path), "train", 0, TOKENIZER, sides=2) as shard:
        for _ in range(2):
            with pytest.raises(ValueError, match="`ids` must be in"):
                shard.add([4], [17])
        shard.add([5], [6])
    assert (shard.facts.documents, shard.facts.tokens) == (1, 2)


def test_a_shard_that_is_written_again_is_not_done_meanwhile(tmp_path, monkeypatch):
    (name,) = write(tmp_path / "c", [[[4, 5]]])
    renamed = []

    def replace(source, target, replace=os.replace):
        if os.path.basename(target).startswith(name):
            renamed.append((tmp_path / "c" / f"{name}.json").exists())
        replace(source, target)

    monkeypatch.setattr(os, "replace", replace)
    write(tmp_path / "c", [[[6]]])
    assert renamed == [False] * 3
    assert (tmp_path / "c" / f"{name}.json").exists()


@pytest.mark.parametrize(
    "parts, sides, message",
    [
        ([[4.5, 5.0]], 1, r"must be arrays of integers.*dtype=float64"),
        ([[[4, 5]]], 1, r"must be arrays of integers.*shape=\(1, 2\)"),
        ([[4], [5, 6], None, [4, 6]], 1, "must be ended by `end`. Received: 2 tokens after"),
        ([[4], None, [5], None, [6], None], 2, "must have 2 sides. Received: 3 sides"),
    ],
)
def test_shards_that_would_not_be_read_are_refused(tmp_path, parts, sides, message):
    with pytest.raises(ValueError, match=message):
        with text.TokenWriter(str(tmp_path), "train", 0, TOKENIZER, sides) as shard:
            for part in parts:
                shard.end() if part is None else shard.extend(part)
    assert not [*tmp_path.iterdir()]


def altered(folder, name, change):
    """Change a file's content, and its time of change, which a quick test may not reach."""
    path = os.path.join(folder, name)
    with open(path, "rb") as file:
        content = bytearray(file.read())
    with open(path, "wb") as file:
        file.write(change(content))
    os.utime(path, ns=(1, 1))


def flipped(content):
    content[0] ^= 1
    return content


@pytest.mark.parametrize(
    "name, change, message",
    [
        ("part-00002-train.bin", flipped, "part-00002-train.bin .*its SHA-256 differs"),
        ("part-00002-train.bin", lambda x: x[:-2], "has 12 bytes, not 14"),
        ("part-00000-train.idx", lambda x: x[:-1], "has 23 bytes, not 24"),
        ("part-00000-train.idx", flipped, "part-00000-train.idx .*its SHA-256 differs"),
        ("manifest.json", lambda x: x[:-9], "manifest.json is damaged"),
        ("manifest.json", lambda x: b'{"format": "other"}', "none of the format"),
        ("manifest.json", lambda x: x.replace(b'"texts"', b'"test"'), "is damaged"),
    ],
)
def test_cut_and_altered_files_are_refused(tmp_path, name, change, message):
    folder = corpus(tmp_path / "c", PARTS)
    assert len(text.TokenFiles(folder)[:]) == 18  # the first reading finds nothing
    altered(folder, name, change)
    with pytest.raises(ValueError, match=message) as error:
        files = text.TokenFiles(folder)
        files[:], files.documents[0]
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name, message",
    [
        ("part-00000-train.bin", "part-00000-train.bin of a corpus is missing"),
        ("manifest.json", "There is no corpus in"),
        ("tokenizer.model", "is missing, or not the tokenizer"),
    ],
)
def test_missing_files_are_named(tmp_path, name, message):
    folder = corpus(tmp_path / "c", PARTS)
    os.remove(os.path.join(folder, name))
    with pytest.raises(ValueError, match=message):
        text.TokenFiles(folder).manifest.load_tokenizer(folder)


def test_a_file_is_hashed_once_a_process_when_it_is_first_read(tmp_path, monkeypatch):
    folder, hashed = corpus(tmp_path / "c", PARTS), []

    def spy(path, hash_of=checked_files.hash_of):
        hashed.append(os.path.basename(path))
        return hash_of(path)

    monkeypatch.setattr(checked_files, "hash_of", spy)
    text.TokenFiles(folder)[0:2]
    assert hashed == ["part-00000-train.bin"]
    for _ in range(3):
        text.TokenFiles(folder)[:]
        checked_files._opened.cache_clear()  # as if too many files were open
    assert sorted(hashed) == [f"part-0000{part}-train.bin" for part in (0, 2, 3)]


def test_a_file_that_is_replaced_between_reads_is_refused(tmp_path):
    folder = corpus(tmp_path / "c", PARTS)
    files = text.TokenFiles(folder)
    files[0:2]
    path = os.path.join(folder, "part-00000-train.bin")
    with open(path, "rb") as file:
        content = file.read()
    os.remove(path)
    with open(path, "wb") as file:
        file.write(content[::-1])
    checked_files._opened.cache_clear()  # as if too many files were open
    with pytest.raises(ValueError, match="was replaced after it was opened first"):
        files[0:2]


def test_another_manifest_is_refused(tmp_path):
    folder = corpus(tmp_path / "c", PARTS)
    options = {"kind": "bpe", "more": 3}
    assert text.Manifest.read(folder, {"kind": "characters"}).total("train", "characters") == 14
    with pytest.raises(ValueError, match="kind='characters', now 'bpe', more=None, now 3"):
        text.Manifest.read(folder, options)
    with pytest.raises(ValueError, match="has the splits train. Received: split='valid'"):
        text.TokenFiles(folder, "valid")


def test_tools_are_never_mixed(tmp_path):
    folder = tmp_path / "c"
    names = write(folder, [[[4]], [[5]]])
    facts = json.loads((folder / f"{names[1]}.json").read_text())
    facts["tool"] = {"tensorflow_text": "2.21.0"}
    (folder / f"{names[1]}.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match="must have the same tool.*tensorflow_text"):
        text.Manifest.make(str(folder), {"train": names}, {}, {})
    assert not (folder / "manifest.json").exists()


def test_a_short_read_is_refused(tmp_path, monkeypatch):
    files = text.TokenFiles(corpus(tmp_path / "c", PARTS))
    files[:]
    monkeypatch.setattr(checked_files.os, "pread", lambda *_: b"")
    with pytest.raises(ValueError, match="ends at byte 0"):
        files[0:3]


@settings(deadline=None, max_examples=10)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=5), st.integers(1, 9))
def test_long_reads_come_in_pieces(tmp_path_factory, lengths, most):
    folder = tmp_path_factory.mktemp("pieces") / "c"
    files = text.TokenFiles(corpus(folder, [documents_of([n]) for n in lengths]))
    expected = files[:].tolist()
    before, checked_files._MOST_BYTES = checked_files._MOST_BYTES, most
    try:
        assert files[:].tolist() == expected
    finally:
        checked_files._MOST_BYTES = before


def test_steps_are_refused():
    with pytest.raises(ValueError, match="must have step 1"):
        ArrayFiles([], "<u2", "int32")[::2]
