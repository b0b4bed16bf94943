"""Files of a corpus, and ranges of them."""

import os
from typing import NamedTuple

from keras_attn.text.corpus.manifest import MANIFEST

from ..common import files

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


def find_files(data_dir, endings=None):
    """Return the folder of a corpus and the paths of its texts in it, sorted.

    Args:
        data_dir: str. A folder, which is searched with its subfolders, or one file.
        endings: tuple of str. Those of the texts, to which .gz or .zst may be added; by default
            .txt, those of JSON lines, and of any compressed file.

    Raises:
        ValueError: if there is no such folder, or it holds no text.
    """
    if os.path.isfile(data_dir):
        folder, name = os.path.split(data_dir)
        if not _is_text(name, endings):
            raise ValueError(f"{_wanted(endings)}. Received: --data-dir {data_dir}.")
        return folder or ".", [name]
    if not os.path.isdir(data_dir):
        raise ValueError(f"There is no such folder or file. Received: --data-dir {data_dir}.")
    if os.path.isfile(os.path.join(data_dir, MANIFEST)):
        raise ValueError(
            "A prepared corpus is no text; language-model, masked-language-model and "
            f"translate read it. Received: --data-dir {data_dir}."
        )
    paths = sorted(_visible_files(data_dir))
    texts = [path for path in paths if _is_text(os.path.basename(path), endings)]
    if not texts:
        listed = ", ".join(paths[:_MOST_NAMES]) or "no file"
        wanted = _wanted(endings)
        raise ValueError(f"{wanted}. Received: --data-dir {data_dir}, which has {listed}.")
    return data_dir, texts


def _visible_files(directory):
    """Yield the paths of all files in a directory; names that begin with a dot are left out."""
    for folder, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(".")]
        place = os.path.relpath(folder, directory)
        for name in names:
            if not name.startswith("."):
                yield name if place == "." else f"{place}/{name}".replace(os.sep, "/")


def _wanted(endings):
    if endings is None:
        return "A corpus has files .txt, .jsonl, .gz or .zst"
    return f"The corpus needs files {' and '.join(endings)}, which may also end in .gz or .zst"


def is_json_lines(path):
    """Return True for a file with one JSON object a line."""
    return files.stem(path).endswith(JSON_LINES)


def boundary(file, place, by_lines=True):
    """Return the first place from `place` at which a line, or a line after a blank one, begins."""
    file.seek(place - 1)
    file.readline()
    while not by_lines and file.readline().strip():
        pass
    return file.tell()


def _is_text(name, endings):
    stem = files.stem(name)
    if endings is None:
        plain = stem.endswith((".txt", *JSON_LINES))
        return not stem.endswith(".tar") if files.compression(name) else plain
    return stem.endswith(endings)
