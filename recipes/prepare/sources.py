"""Files of a corpus, and the parts in which they are prepared."""

import os
from typing import NamedTuple

from keras_attn.text.token_manifest import MANIFEST

from .. import files

LONGEST = 2**23  # bytes of a document; a longer one is cut into several
JSON_LINES = (".jsonl", ".ndjson", ".json")
_MOST_NAMES = 10


class Source(NamedTuple):
    """A file, or the bytes of it from `start` to `stop`, at which documents begin.

    Args:
        path: str. Relative to the corpus, with "/".
        start: int.
        stop: int. None for the file's end.
    """

    path: str
    start: int = 0
    stop: int | None = None


def find_files(data_dir):
    """Return the folder of a corpus and the paths of its texts in it, sorted.

    Args:
        data_dir: str. A folder, which is searched with its subfolders, or one file.

    Raises:
        ValueError: if there is no such folder, or it holds no text.
    """
    if os.path.isfile(data_dir):
        folder, name = os.path.split(data_dir)
        if not _is_text(name):
            raise ValueError(f"{_WANTED}. Received: --data-dir {data_dir}.")
        return folder or ".", [name]
    if not os.path.isdir(data_dir):
        raise ValueError(f"There is no such folder or file. Received: --data-dir {data_dir}.")
    if os.path.isfile(os.path.join(data_dir, MANIFEST)):
        raise ValueError(
            "A prepared corpus is no text; recipes.language_model, masked_language_model and "
            f"translate read it. Received: --data-dir {data_dir}."
        )
    found, others = [], []
    for folder, folders, names in os.walk(data_dir):
        folders[:] = [name for name in folders if not name.startswith(".")]
        place = os.path.relpath(folder, data_dir)
        for name in names:
            path = name if place == "." else f"{place}/{name}".replace(os.sep, "/")
            if not name.startswith("."):
                (found if _is_text(name) else others).append(path)
    if not found:
        listed = ", ".join(sorted(others)[:_MOST_NAMES]) or "no file"
        raise ValueError(f"{_WANTED}. Received: --data-dir {data_dir}, which has {listed}.")
    return data_dir, sorted(found)


_WANTED = "A corpus has files .txt, .jsonl, .gz or .zst"


def is_json_lines(path):
    """Return True for a file with one JSON object a line."""
    return files.stem(path).endswith(JSON_LINES)


def divide(folder, paths, documents, part_size):
    """Return the parts of a corpus, a list of lists of `Source`s.

    A part is the unit of work and of restart, and one shard of each split. Small files share a
    part; a large file that is not compressed is divided where a document begins. Parts are a
    function of the files and of their sizes, not of the number of processes. A file that is one
    document is not divided unless it is too long for one.

    Args:
        folder: str.
        paths: list of str. The files in it.
        documents: str. How a `.txt` holds documents, as `documents.read` takes it.
        part_size: int. Bytes of a part.
    """
    parts, free = [], 0
    for path in paths:
        for source, size in _ranges(folder, path, documents, part_size):
            if size > free or not parts:
                parts.append([])
                free = part_size
            parts[-1].append(source)
            free -= size
    return parts


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
            stop = (
                _boundary(file, start + part_size, by_lines) if start + part_size < size else size
            )
            yield Source(path, start, stop), stop - start
            start = stop


def _boundary(file, place, by_lines):
    """Return the first place from `place` at which a line, or a line after a blank one, begins."""
    file.seek(place - 1)
    file.readline()
    while not by_lines and file.readline().strip():
        pass
    return file.tell()


def _is_text(name):
    if files.compression(name):
        return not files.stem(name).endswith(".tar")
    return name.endswith((".txt", *JSON_LINES))
