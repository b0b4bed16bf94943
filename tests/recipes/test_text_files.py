"""Texts in files: what they hold is read in blocks, what is wrong is one sentence."""

import gzip
import json

import pytest

from recipes.common import files
from recipes.text.data import read_text
from recipes.text.text_files import TextFiles, find_text, hash_files

PARTS = ["one\n\u00e4\u20ac\n", "two\u2028", "\nthree"]
LINES = "".join(json.dumps({"text": part, "other": 1}) + "\n" for part in PARTS)


def text_of(*paths):
    return "".join(TextFiles(paths).blocks())


@pytest.mark.parametrize("block", [1, 3, 7, 2**18])
def test_files_of_each_kind_hold_the_same_text(tmp_path, monkeypatch, block):
    monkeypatch.setattr(files, "_BLOCK", block)
    contents = {
        "a.txt": "".join(PARTS).encode(),
        "a.txt.gz": gzip.compress("".join(PARTS).encode()),
        "a.jsonl": LINES.replace("\n", "\n\n").encode(),
        "a.jsonl.gz": gzip.compress(LINES.rstrip().encode()),
    }
    for name, content in contents.items():
        path = tmp_path / name
        path.write_bytes(content)
        ends = "\n" if "json" in name else ""
        expected = "".join(part + ends for part in PARTS)
        text_files = TextFiles([path, path])
        assert text_of(path, path) == expected * 2
        assert [*text_files.lines()] == (expected * 2).split("\n")
        assert text_files.count() == 2 * len(expected)
        for cut in ((0, 5), (3, 11), (12, 99), (4, 4)):
            assert "".join(text_files.part(*cut).blocks()) == (expected * 2)[slice(*cut)]


@pytest.mark.parametrize("name, content", [("a.txt", "one\n"), ("a.jsonl", '{"text": "one"}')])
def test_a_byte_order_mark_is_no_character(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8-sig")
    assert text_of(tmp_path / name) == "one\n"


@pytest.mark.parametrize("block", [1, 2, 5, 2**18])
def test_every_kind_of_line_end_is_one_and_joined_files_leave_no_marks(
    tmp_path, monkeypatch, block
):
    monkeypatch.setattr(files, "_BLOCK", block)
    lines = ["one", "zwei \u00e4", "", "three\x0c\u2028\ufeff", "", "5"]
    ends = ["\r\n", "\r", "\n", "\r", "\r\n", ""]
    content = "".join(f"\ufeff{line}{end}" for line, end in zip(lines, ends, strict=True))
    (tmp_path / "a.txt").write_bytes(content.encode())
    assert text_of(tmp_path / "a.txt") == "\n".join(lines)
    objects = "".join(f'\ufeff{{"text": "{i}\\r\\n\\r"}}\r\n' for i in range(3))
    (tmp_path / "a.jsonl").write_bytes(objects.encode())
    assert text_of(tmp_path / "a.jsonl") == "0\n\n\n1\n\n\n2\n\n\n"


def test_zstandard(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    path = tmp_path / "a.txt.zst"
    content = ("".join(PARTS) * 999).encode()
    frames = b"".join(map(zstandard.compress, (content[:5000], content[5000:])))
    path.write_bytes(frames)
    assert text_of(path) == content.decode()
    for damaged, message in (
        (frames[:-9], "ends within a frame"),
        (b"no" + frames, "not a complete"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=message):
            text_of(path)


def test_without_zstandard_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    (tmp_path / "a.txt.zst").write_bytes(b"x")
    with pytest.raises(ImportError, match=r"a.txt.zst needs .*'keras_attn\[zstd\]'"):
        text_of(tmp_path / "a.txt.zst")


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.txt", b"one \xff two", "Line 1 of the file .*a.txt is not UTF-8"),
        ("a.txt", b"one\r\ntwo\n\xff two", "Line 3 of the file .*a.txt is not UTF-8"),
        ("a.txt", "one".encode("utf-16"), "a.txt must be UTF-8. Received: UTF-16."),
        ("a.txt", b"one \xe2\x82", "a.txt is not UTF-8"),
        ("a.txt", b"", "a.txt is empty"),
        ("a.txt.gz", gzip.compress(b"one", mtime=0)[:-2], "a.txt.gz is not a complete gzip file"),
        ("a.jsonl", b'{"text": "a"}\n{"texts": "b"}\n', "Line 2 of the file .*a.jsonl is no JSON"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "b"', "Line 2 of the file .*a.jsonl is no JSON"),
        ("a.jsonl", b'{"text": 3}', "Line 1 of the file .*a.jsonl is no JSON"),
        ("a.jsonl", b"[" * 100_000, "Line 1 of the file .*a.jsonl is no JSON"),
    ],
)
def test_bad_files(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        text_of(tmp_path / name)
    assert "\n" not in str(error.value)


def test_a_split_is_a_file_or_a_folder_of_files(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / split).mkdir()
    (tmp_path / "train" / "b.txt").write_text("two\n")
    (tmp_path / "train" / "a.jsonl").write_text('{"text": "one"}\n')
    (tmp_path / "train" / "notes.md").write_text("none")
    (tmp_path / "valid" / "c.txt.gz").write_bytes(gzip.compress(b"three"))
    with pytest.raises(ValueError, match="test has no file that ends in .txt or .jsonl"):
        read_text(tmp_path)
    (tmp_path / "test" / "d.txt").write_text("four")
    corpus = read_text(tmp_path)
    texts = {split: "".join(part.blocks()) for split, part in corpus.splits().items()}
    assert texts == {"train": "one\ntwo\n", "valid": "three", "test": "four"}
    assert [*corpus.hashes] == ["train/a.jsonl", "train/b.txt", "valid/c.txt.gz", "test/d.txt"]


def test_the_last_tenth_of_one_file_is_held_out(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("".join(map(str, range(1000, 1010))) + "e")
    parts = read_text(path=path).splits()
    assert [part.count() for part in parts.values()] == [37, 2, 2]
    assert "".join("".join(part.blocks()) for part in parts.values()) == path.read_text()


def test_hashes_are_of_the_files(tmp_path):
    (tmp_path / "a.txt").write_text("abc")
    (tmp_path / "b.txt").write_text("")
    assert hash_files([tmp_path / "a.txt"], tmp_path) == {  # FIPS 180-4, the first example
        "a.txt": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    }
    with pytest.raises(ValueError, match="b.txt is empty"):
        hash_files([tmp_path / "b.txt"], tmp_path)
    with pytest.raises(ValueError, match="no file train.jsonl or train.txt, with"):
        find_text(tmp_path, "train")
