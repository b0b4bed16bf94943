"""Texts in files, read in blocks: plain, compressed, or one JSON object a line."""

import json
import os
from pathlib import Path

from keras_attn.text.corpus.array_files import hash_of

from ..common import files
from ..common.text_reader import text_blocks, unify_line_ends

ENDINGS = (".txt", ".jsonl")
FIELD = "text"  # of a JSON object


class TextFiles:
    """The text of one or many files, one after another, of which only a block is in memory.

    A name that ends in .jsonl, but for .gz and .zst, has one JSON object a line: the text is its
    field `text` and a line end. Other files are text in UTF-8.

    Args:
        paths: list of paths.
        start, stop: ints. The characters that are the text; all by default.
        errors: "strict" or "ignore", for bytes that are not UTF-8.
    """

    def __init__(self, paths, start=0, stop=None, errors="strict"):
        self.paths, self._start, self._stop, self._errors = paths, start, stop, errors

    def blocks(self):
        """Yield the text in str of some hundred thousand characters."""
        position = 0
        for path in self.paths:
            for block in _blocks(path, self._errors):
                first = max(self._start - position, 0)
                last = len(block) if self._stop is None else self._stop - position
                if self._stop is not None and last <= 0:
                    return
                if block[first:last]:
                    yield block[first:last]
                position += len(block)

    def lines(self):
        """Return an iterator of the lines, without their ends; the last one may be empty."""
        return _lines(self.blocks())

    def part(self, start, stop):
        """Return a part of the characters as a text."""
        return TextFiles(self.paths, start, stop, self._errors)

    def count(self):
        """Return the number of characters."""
        return sum(map(len, self.blocks()))


def find_text(directory, split):
    """Return the paths of a split: `SPLIT.txt` or `SPLIT.jsonl`, or all such in a folder `SPLIT`.

    Each may end in .gz or .zst.

    Raises:
        ValueError: if there is none.
    """
    folder = Path(directory, split)
    if folder.is_dir():
        endings = tuple(end + more for end in ENDINGS for more in (*files.COMPRESSED, ""))
        paths = sorted(path for path in folder.iterdir() if path.name.endswith(endings))
        if not paths:
            raise ValueError(f"The folder {folder} has no file that ends in .txt or .jsonl.")
        return paths
    return [files.find(directory, f"{split}.jsonl", f"{split}.txt")]


def hash_files(paths, directory):
    """Return the SHA-256 of each file by its name in a directory; none may be empty."""
    hashes = {}
    for path in paths:
        if not os.path.isfile(path) or not os.path.getsize(path):
            next(files.blocks(path))  # raises the error
        hashes[Path(os.path.relpath(path, directory)).as_posix()] = hash_of(path)
    return hashes


def _blocks(path, errors):
    text = text_blocks(path, errors)
    is_objects = files.stem(os.fspath(path)).endswith(".jsonl")
    return _objects(text, path) if is_objects else text


def _objects(blocks, path):
    """Yield the text of each JSON object, with a line end; blank lines are left out."""
    for number, line in enumerate(_lines(blocks), 1):
        if line.strip():
            yield _text_of(line, path, number)


def _lines(blocks):
    """Yield lines without their ends; each character is copied a few times at most."""
    pieces = []
    for block in blocks:
        first, *others = block.split("\n")
        pieces.append(first)
        for line in others:
            yield "".join(pieces)
            pieces = [line]
    yield "".join(pieces)


def _text_of(line, path, number):
    try:
        text = json.loads(line)[FIELD]
    except (ValueError, KeyError, TypeError, RecursionError):
        text = None
    if not isinstance(text, str):
        raise ValueError(
            f"Line {number} of the file {path} is no JSON object with a string named {FIELD!r}."
        )
    return unify_line_ends(text) + "\n"
