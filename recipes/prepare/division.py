"""Division of a corpus into the parts in which it is prepared."""

import os

from ..common import files
from .parallel_text import PARALLEL_TEXT, parallel_ranges
from .sources import LONGEST, Source, boundary, is_json_lines


def divide(folder, paths, documents, part_size):
    """Return the parts of a corpus, a list of lists of `Source`s.

    A part is the unit of work and of restart, and one shard of each split. Small files share a
    part; a large file that is not compressed is divided where a document begins. Parts are a
    function of the files and of their sizes, not of the number of processes. A file that is one
    document is not divided unless it is too long for one.

    Args:
        folder: str.
        paths: list of str. The files in it.
        documents: str. How a `.txt` holds documents, or `PARALLEL_TEXT`, with paths that are
            alternately source and target.
        part_size: int. Bytes of a part.
    """
    parts, free = [], 0
    for sources, size in _units(folder, paths, documents, part_size):
        if size > free or not parts:
            parts.append([])
            free = part_size
        parts[-1].extend(sources)
        free -= size
    return parts


def _units(folder, paths, documents, part_size):
    """Yield lists of sources that belong to one part, and their sizes."""
    if documents == PARALLEL_TEXT:
        for pair in zip(paths[::2], paths[1::2], strict=True):
            yield from parallel_ranges(folder, pair, part_size)
        return
    for path in paths:
        for source, size in _ranges(folder, path, documents, part_size):
            yield [source], size


def _ranges(folder, path, documents, part_size):
    """Yield the ranges of a file and their sizes."""
    full = os.path.join(folder, path)
    size = os.path.getsize(full)
    if documents == "file" and not is_json_lines(path):
        part_size = max(part_size, LONGEST)
    if size <= part_size or files.compression(path):
        yield Source(path), size
        return
    by_lines = is_json_lines(path) or documents != "blank_lines"
    with open(full, "rb") as file:
        start = 0
        while start < size:
            stop = boundary(file, start + part_size, by_lines) if start + part_size < size else size
            yield Source(path, start, stop), stop - start
            start = stop
