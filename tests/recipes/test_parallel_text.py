"""Reading parallel text: what is right comes in whole, what is wrong is said in one sentence."""

import gzip

import pytest

from recipes.translate.parallel_text import ParallelText
from recipes.translate.task import parallel_text


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.en").write_bytes(b"one\ntwo\n")
    (tmp_path / "train.de").write_bytes(b"eins\nzwei\n")
    return tmp_path


def read(folder, variant="raw"):
    return [*ParallelText(folder, "train", "en", "de", variant)]


def test_plain_files(folder):
    assert read(folder) == read(str(folder)) == [("one", "eins"), ("two", "zwei")]
    assert next(iter(ParallelText(folder, "train", "de", "en"))) == ("eins", "one")


def test_compressed_files_are_preferred(folder):
    (folder / "train.en.gz").write_bytes(gzip.compress(b"1\n2\n"))
    assert read(folder) == [("1", "eins"), ("2", "zwei")]


def test_variants_are_other_files(folder):
    (folder / "train.lc.norm.tok.en").write_bytes(b"a b .\n")
    (folder / "train.lc.norm.tok.de.gz").write_bytes(gzip.compress("ä .\n".encode()))
    assert read(folder, "lc.norm.tok") == [("a b .", "ä .")]
    assert len(read(folder)) == 2


@pytest.mark.parametrize("other", ["\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"])
def test_only_line_feeds_end_lines(folder, other):
    (folder / "train.en").write_bytes(f"on{other}e\ntwo\n".encode())
    assert read(folder) == [(f"on{other}e", "eins"), ("two", "zwei")]


def test_the_last_line_end_may_be_missing_and_lines_may_be_blank(folder):
    (folder / "train.en").write_bytes(b"one\ntwo")
    assert [source for source, _ in read(folder)] == ["one", "two"]
    (folder / "train.en").write_bytes(b"\n\n")
    assert [source for source, _ in read(folder)] == ["", ""]


def test_line_ends_of_windows_and_byte_order_marks_are_no_part_of_a_sentence(folder):
    (folder / "train.en").write_bytes(b"\xef\xbb\xbfone\r\n\xef\xbb\xbftwo\r\r\n")
    assert read(folder) == [("one", "eins"), ("two", "zwei")]


def test_lines_that_only_carriage_returns_end_are_refused(folder):
    (folder / "train.en").write_bytes(b"one\rtwo\rthree")
    fails(folder, f"{folder / 'train.en'} must end its lines with line feeds", "but 2 carriage")


@pytest.mark.parametrize("blank", [" ", "\r", "\t", "\u3000", "\ufeff", "\u200b", "\x1a"])
def test_blank_references_are_refused_with_their_lines(folder, blank):
    (folder / "val.en").write_bytes(b"one\ntwo\nthree\n")
    (folder / "val.de").write_bytes(f"eins\n{blank}\r\n\n".encode())
    with pytest.raises(ValueError, match=f"^Lines 2 and 3 of the file {folder / 'val.de'} are emp"):
        parallel_text(folder, "en", "de", "raw")
    (folder / "val.de").write_bytes("eins\n\u200b.\n\x07\n".encode())
    with pytest.raises(ValueError, match=f"^Line 3 of the file {folder / 'val.de'} is empty"):
        parallel_text(folder, "en", "de", "raw")


def fails(folder, *fragments, variant="raw"):
    with pytest.raises(ValueError) as error:
        read(folder, variant)
    message = str(error.value)
    assert "\n" not in message
    for fragment in fragments:
        assert fragment in message


def test_a_missing_directory(folder):
    nowhere = folder / "nowhere"
    fails(nowhere, "no such directory", f"data_dir={str(nowhere)!r}")
    fails(folder / "train.en", "no such directory")
    nowhere.mkdir()
    fails(nowhere, "which has no file.")


def test_a_missing_file_lists_those_that_are_there(folder):
    (folder / "train.de").rename(folder / "test.de")
    (folder / "subfolder").mkdir()
    fails(folder, "no file train.de, with or without .gz or .zst", "which has test.de, train.en.")
    fails(folder, "no file train.tok.en, with", variant="tok")


@pytest.mark.parametrize("ending", ["", "\n"])
def test_different_numbers_of_lines(folder, ending):
    (folder / "train.en").write_text(f"1\n2\n3{ending}", newline="")
    fails(folder, f"{folder / 'train.en'} with 3", f"{folder / 'train.de'} with 2")


@pytest.mark.parametrize(
    "name, content", [("train.en", b""), ("train.en.gz", gzip.compress(b"", mtime=0))]
)
def test_an_empty_file(folder, name, content):
    (folder / name).write_bytes(content)
    fails(folder, f"{folder / name} is empty")


def test_invalid_utf8_names_the_line(folder):
    (folder / "train.de").write_bytes(b"eins\nzwei\xff\n")
    fails(folder, f"Line 2 of the file {folder / 'train.de'} is not UTF-8")


GOOD = gzip.compress(b"one\ntwo\n", mtime=0)


@pytest.mark.parametrize(
    "content",
    [b"one\ntwo\n", GOOD[:-4], GOOD[:15], GOOD[:12] + b"\xff\xff" + GOOD[14:], b"", GOOD + b"x"],
    ids=["no gzip", "cut at its end", "cut short", "damaged", "no byte", "trailing"],
)
def test_a_corrupt_gzip_file(folder, content):
    (folder / "train.en.gz").write_bytes(content)
    fails(folder, str(folder / "train.en.gz"))
