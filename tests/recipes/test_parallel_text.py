"""Reading parallel text: what is right comes in whole, what is wrong is said in one sentence."""

import gzip
from pathlib import Path

import pytest

from recipes.translate.parallel_text import ParallelText

MULTI30K = Path(__file__).resolve().parents[3] / "shared" / "data" / "multi30k"
SIZES = {
    "train": 29_000,
    "val": 1_014,
    "test_2016_flickr": 1_000,
    "test_2017_flickr": 1_000,
    "test_2017_mscoco": 461,
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.en").write_bytes(b"one\ntwo\n")
    (tmp_path / "train.de").write_bytes(b"eins\nzwei\n")
    return tmp_path


def read(folder, variant="raw"):
    return [*ParallelText(folder, "train", "en", "de", variant)]


def test_plain_files(folder):
    assert read(folder) == read(str(folder)) == [("one", "eins"), ("two", "zwei")]


def test_compressed_files_are_preferred(folder):
    (folder / "train.en.gz").write_bytes(gzip.compress(b"1\n2\n"))
    assert read(folder) == [("1", "eins"), ("2", "zwei")]


def test_variants_are_other_files(folder):
    (folder / "train.lc.norm.tok.en").write_bytes(b"a b .\n")
    (folder / "train.lc.norm.tok.de.gz").write_bytes(gzip.compress("ä .\n".encode()))
    assert read(folder, "lc.norm.tok") == [("a b .", "ä .")]
    assert len(read(folder)) == 2


def test_the_sides_may_be_swapped(folder):
    assert next(iter(ParallelText(folder, "train", "de", "en"))) == ("eins", "one")


@pytest.mark.parametrize("other", ["\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"])
def test_only_line_feeds_end_lines(folder, other):
    (folder / "train.en").write_bytes(f"on{other}e\ntwo\n".encode())
    assert read(folder) == [(f"on{other}e", "eins"), ("two", "zwei")]


def test_the_last_line_end_may_be_missing_and_lines_may_be_blank(folder):
    (folder / "train.en").write_bytes(b"one\ntwo")
    assert [source for source, _ in read(folder)] == ["one", "two"]
    (folder / "train.en").write_bytes(b"\n\n")
    assert [source for source, _ in read(folder)] == ["", ""]


def fails(folder, *fragments, variant="raw"):
    with pytest.raises(ValueError) as error:
        read(folder, variant)
    message = str(error.value)
    assert "\n" not in message
    for fragment in fragments:
        assert fragment in message


def test_a_missing_directory(tmp_path):
    fails(tmp_path / "nowhere", "no such directory", f"data_dir={str(tmp_path / 'nowhere')!r}")


def test_a_file_for_a_directory(folder):
    fails(folder / "train.en", "no such directory")


def test_a_missing_file_lists_those_that_are_there(folder):
    (folder / "train.de").rename(folder / "test.de")
    (folder / "subfolder").mkdir()
    fails(folder, "no file train.de, with or without .gz or .zst", "which has test.de, train.en.")
    fails(folder, "no file train.tok.en, with", variant="tok")


def test_a_long_list_of_names_is_cut(folder):
    for number in range(40):
        (folder / f"other{number:02}").touch()
    (folder / "train.en").unlink()
    fails(folder, "other29 and 11 more.")


def test_an_empty_directory(tmp_path):
    fails(tmp_path, "which has no file.")


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


@pytest.mark.skipif(not MULTI30K.is_dir(), reason="needs Multi30k")
@pytest.mark.parametrize("variant, target", [("raw", "fr"), ("lc.norm.tok", "de")])
def test_multi30k(variant, target):
    for split, size in SIZES.items():
        pairs = [*ParallelText(MULTI30K, split, "en", target, variant)]
        assert len(pairs) == size
        assert all(source.strip() and target.strip() for source, target in pairs)
