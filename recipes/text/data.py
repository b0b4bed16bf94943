"""Text of a directory or of a file, or the source of Python's standard library."""

import os
import sysconfig
from pathlib import Path
from typing import NamedTuple

from keras_attn.text.corpus.array_files import hash_of
from keras_attn.text.corpus.manifest import MANIFEST

from ..common import files
from ..common.files import SPLITS
from . import text_files
from .text_files import TextFiles

# Share of a text in one piece that is held out at its end for each of `valid` and `test`.
HELD_OUT = 0.05


class Text(NamedTuple):
    """A text for training: its files, or a corpus that has been prepared.

    Args:
        name: str.
        hashes: dict. SHA-256 of each file, by name.
        files: dict of the name of a split to `TextFiles`. A text in one piece has one key, "".
        corpus: str. Directory of a prepared corpus, in place of `files`.
    """

    name: str
    hashes: dict
    files: dict
    corpus: str | None = None

    def splits(self):
        """Return a dict of splits to `TextFiles`; a text in one piece is read, and cut.

        Raises:
            ValueError: if it is too short to be cut, or not UTF-8.
        """
        if "" not in self.files:
            return self.files
        whole = self.files[""]
        length = whole.count()
        held_out = int(length * HELD_OUT)
        if not held_out:
            raise ValueError(
                "A tenth of the text must be held out, so it needs 20 characters. "
                f"Received: {self.name} of {length} characters."
            )
        ends = [0, length - 2 * held_out, length - held_out, length]
        parts = (whole.part(*cut) for cut in zip(ends, ends[1:], strict=False))
        return dict(zip(SPLITS, parts, strict=True))

    def identity(self, options):
        """Return the settings that a resumed run must not change: options, and files by hash."""
        sha256 = files.digest_of_hashes(self.hashes)
        return {"text": self.name, "sha256": sha256, **options.identity()}


def read_text(data_dir=None, path=None):
    """Find the text of the options `data_dir` and `path`, and read its files for their hash.

    Args:
        data_dir: str. A directory with a prepared corpus, or with `train`, `valid` and `test`: each
            a file .txt or .jsonl, or a folder of such files; each may also end in .gz or .zst.
        path: str. A file, of which the last tenth is held out.

    Returns:
        A `Text`.

    Raises:
        ValueError: if a file is missing or empty.
    """
    if data_dir is None:
        paths, errors = ([path], "strict") if path else (_standard_library(), "ignore")
        name = Path(path).name if path else "Python's standard library"
        hashes = text_files.hash_files(paths, os.path.dirname(paths[0]))
        return Text(name, hashes, {"": TextFiles(paths, errors=errors)})
    name, manifest = Path(data_dir).resolve().name, Path(data_dir, MANIFEST)
    if manifest.is_file():
        return Text(name, {MANIFEST: hash_of(manifest)}, {}, os.fspath(data_dir))
    paths = {split: text_files.find_text(data_dir, split) for split in SPLITS}
    hashes = text_files.hash_files([p for parts in paths.values() for p in parts], data_dir)
    return Text(name, hashes, {split: TextFiles(parts) for split, parts in paths.items()})


def _standard_library():
    """Return its modules one after another: some megabytes of text that every Python has."""
    folder = sysconfig.get_path("stdlib")
    names = sorted(name for name in os.listdir(folder) if name.endswith(".py"))
    paths = [Path(folder, name) for name in names]
    return [path for path in paths if path.stat().st_size]
