"""Text of a directory or of a file, or the source of Python's standard library."""

import os
import sysconfig
from pathlib import Path

from .. import files

SPLITS = ("train", "valid", "test")
# Share of a text in one piece that is held out at its end for each of `valid` and `test`.
HELD_OUT = 0.05


def read_text(data_dir=None, path=None):
    """Read the three splits of a text, in UTF-8.

    Args:
        data_dir: str. A directory with `train.txt`, `valid.txt` and `test.txt`, or their `.gz`.
        path: str. A file, compressed or not, of which the last tenth is held out.

    Returns:
        The name of the text, and a dict of split to str.

    Raises:
        ValueError: if a file is missing, empty, damaged or not UTF-8, or too short to be split.
    """
    if data_dir is not None:
        paths = {split: files.find(data_dir, f"{split}.txt") for split in SPLITS}
        return Path(data_dir).resolve().name, {split: _decode(p) for split, p in paths.items()}
    whole = _standard_library() if path is None else _decode(path)
    held_out = int(len(whole) * HELD_OUT)
    if not held_out:
        raise ValueError(
            "A tenth of the text must be held out, so it needs 20 characters. "
            f"Received: {path} of {len(whole)} characters."
        )
    parts = whole[: -2 * held_out], whole[-2 * held_out : -held_out], whole[-held_out:]
    name = "Python's standard library" if path is None else Path(path).name
    return name, dict(zip(SPLITS, parts, strict=True))


def text_identity(options, name, splits):
    """Return the settings that a resumed run must not change: options, and the text by its hash."""
    return {"text": name, "sha256": files.digest(*splits.values()), **options.identity()}


def _decode(path):
    try:
        return files.read(path).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"The file {path} is not UTF-8: {error}") from error


def _standard_library():
    """Return its modules one after another: some megabytes of text that every Python has."""
    folder = sysconfig.get_path("stdlib")
    texts = []
    for name in sorted(os.listdir(folder)):
        if name.endswith(".py"):
            texts.append(Path(folder, name).read_text(encoding="utf-8", errors="ignore"))
    return "".join(texts)
