"""Parallel text: files of two languages, whose lines with the same number are a pair."""

import os

from ..common import files
from .open_text import CHUNK, open_text
from .sources import Source, boundary, find_files

PARALLEL_TEXT = "parallel text"  # in place of one of `options.DOCUMENTS`


def find_pairs(data_dir, languages):
    """Return the folder of a corpus and the paths of its texts: source, target, source, ....

    Args:
        data_dir: str. A folder, which is searched with its subfolders, or one file, beside which
            the other one is.
        languages: pair of str, the endings of the files without their dots.

    Raises:
        ValueError: if no file has these endings, or a file has no counterpart, or is there both
            compressed and not.
    """
    endings = tuple(f".{language}" for language in languages)
    folder, paths = find_files(data_dir, endings)
    if os.path.isfile(data_dir):
        (path,) = paths
        paths += _counterparts(folder, path, endings)
    pairs = {}
    for path in paths:
        name, ending = _split_language(path, endings)
        other = pairs.setdefault(name, {}).setdefault(ending, path)
        if other != path:
            raise ValueError(f"Two files are the same text. Received: {other} and {path}.")
    for name, pair in pairs.items():
        missing = [f"{name}{ending}" for ending in endings if ending not in pair]
        if missing:
            (found_path,) = pair.values()
            raise ValueError(
                f"Each text needs its translation. Received: {found_path} without {missing[0]}."
            )
    return folder, [pair[ending] for pair in pairs.values() for ending in endings]


def _counterparts(folder, path, endings):
    """Return the names of the files in the same folder that may be the translation of a file."""
    name, own = _split_language(path, endings)
    others = (f"{name}{e}{more}" for e in endings if e != own for more in ("", *files.COMPRESSED))
    return [other for other in others if os.path.isfile(os.path.join(folder, other))]


def _split_language(path, endings):
    """Return a path without its language, and the language's ending."""
    stem = files.stem(path)
    ending = next(ending for ending in endings if stem.endswith(ending))
    return stem.removesuffix(ending), ending


def parallel_ranges(folder, pair, part_size):
    """Yield ranges of both files of a pair that begin at the same line, and their common size."""
    paths = [os.path.join(folder, path) for path in pair]
    sizes = [os.path.getsize(path) for path in paths]
    if sum(sizes) <= part_size or any(map(files.compression, pair)):
        yield [Source(path) for path in pair], sum(sizes)
        return
    step = max(1, part_size * sizes[0] // sum(sizes))
    starts = [0, 0]
    with open(paths[0], "rb") as source, open(paths[1], "rb") as target:
        while (stop := boundary(source, starts[0] + step)) < sizes[0]:
            source.seek(starts[0])
            lines = sum(block.count(b"\n") for block in _blocks(source, stop - starts[0]))
            stops = [stop, _after_lines(target, starts[1], lines)]
            ranges = [Source(*x) for x in zip(pair, starts, stops, strict=True)]
            yield ranges, sum(stops) - sum(starts)
            starts = stops
    yield [Source(*x) for x in zip(pair, starts, sizes, strict=True)], sum(sizes) - sum(starts)


def count_lines(path):
    """Return the number of lines of a file."""
    count, last = 0, b"\n"
    with open_text(path) as file:
        for block in iter(lambda: file.read(CHUNK), b""):
            count, last = count + block.count(b"\n"), block
    return count + (not last.endswith(b"\n"))


def _blocks(file, size):
    while size > 0 and (block := file.read(min(size, CHUNK))):
        size -= len(block)
        yield block


def _after_lines(file, start, lines):
    """Return the place so many lines after `start`, or the end of the file."""
    file.seek(start)
    place = start
    for block in iter(lambda: file.read(CHUNK), b""):
        number = block.count(b"\n")
        if number >= lines:
            end = 0
            for _ in range(lines):
                end = block.index(b"\n", end) + 1
            return place + end
        place, lines = place + len(block), lines - number
    return place
