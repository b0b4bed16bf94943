"""Files: the user's, found and read with clear errors, and a run's, written atomically."""

import contextlib
import gzip
import hashlib
import json
import math
import os
import zlib
from pathlib import Path

from keras_attn.files import atomic_file

SPLITS = ("train", "valid", "test")  # that a recipe trains, validates and tests on
# A folder that `recipes.prepare` has not finished has this file.
WORK, PLAN = "work", "plan.json"
_MAX_NAMES = 30
COMPRESSED = (".gz", ".zst")
_BLOCK = 2**18  # bytes


def compression(path):
    """Return ".gz", ".zst" or ""."""
    return next((ending for ending in COMPRESSED if path.endswith(ending)), "")


def stem(path):
    """Return a path without ".gz" or ".zst"."""
    return path.removesuffix(compression(path))


def find(directory, *names, remedy=""):
    """Return the path of the first of several files in a directory; one must be there.

    Of each name `name`.gz comes first, then `name`.zst, then `name`. The error of a directory that
    has none of them ends with `remedy`.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise ValueError(f"There is no such directory. Received: data_dir={str(directory)!r}")
    for path in (directory / f"{name}{end}" for name in names for end in (*COMPRESSED, "")):
        if path.is_file():
            return path
    if (directory / WORK / PLAN).is_file():
        raise ValueError(
            f"The corpus in {directory} is not finished; the same command of keras-attn prepare "
            "completes it."
        )
    there = sorted(path.name for path in directory.iterdir() if path.is_file())
    listed = ", ".join(there[:_MAX_NAMES]) or "no file"
    more = f" and {len(there) - _MAX_NAMES} more" if len(there) > _MAX_NAMES else ""
    wanted = " or ".join(names)
    raise ValueError(
        f"There is no file {wanted}, with or without {' or '.join(COMPRESSED)}, in {directory}, "
        f"which has {listed}{more}.{remedy}"
    )


def read(path):
    """Return the bytes of a file, uncompressed if its name says so; it must have some."""
    return b"".join(blocks(path))


def blocks(path):
    """Yield the bytes of a file in blocks, uncompressed if its name ends in .gz or .zst.

    Raises:
        ValueError: if the file is missing, empty or damaged.
        ImportError: if its name ends in .zst and zstandard is not installed.
    """
    path = Path(path)
    if not path.is_file():
        problem = "is a directory, not a file" if path.is_dir() else "does not exist"
        raise ValueError(f"{path} {problem}.")
    is_empty = True
    kind = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix, "")
    opened = gzip.open(path) if kind == "gzip" else open(path, "rb")
    with opened as file:
        raw = iter(lambda: file.read(_BLOCK), b"")
        try:
            for block in decompress_zstd(raw, path) if kind == "zstd" else raw:
                is_empty = is_empty and not block
                yield block
        except (OSError, EOFError, zlib.error) as error:
            problem = f"is not a complete {kind} file" if kind else "cannot be read"
            raise ValueError(f"The file {path} {problem}: {error}") from error
    if is_empty:
        raise ValueError(f"The file {path} is empty.")


def decompress_zstd(raw, path):
    """Yield the content of compressed blocks."""
    try:
        import zstandard
    except ImportError as error:
        raise ImportError(
            f"The file {path} needs the package zstandard: pip install 'keras_attn[zstd]'"
        ) from error
    frame = None
    for block in raw:
        while block:
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            try:
                content = frame.decompress(block)
            except zstandard.ZstdError as error:
                raise OSError(str(error)) from error
            if content:
                yield content
            block = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError("it ends within a frame")


def read_object(path, remedy, *names):
    """Return the dict in a JSON file of a run, which must have keys of these names.

    The error of a damaged file ends with the `remedy`.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError:
        content = None
    if not isinstance(content, dict) or not all(name in content for name in names):
        raise ValueError(f"The file {path} is damaged; {remedy}.")
    return content


@contextlib.contextmanager
def exclusive_directory(directory):
    """Create a directory if it is missing, and lock it: another process gets a `ValueError`."""
    try:
        import filelock
    except ImportError as error:
        raise ImportError("Recipes need filelock: pip install 'keras_attn[recipes]'") from error
    os.makedirs(directory, exist_ok=True)
    lock = filelock.FileLock(os.path.join(directory, ".lock"), blocking=False)
    try:
        with lock:  # the system releases it with the process, however that ends
            yield
    except filelock.Timeout as error:
        raise ValueError(
            f"Another process works in {directory}: wait for it, stop it, or give another --out."
        ) from error


def write(path, text):
    """Write a text file atomically."""
    with atomic_file(path) as temporary:
        Path(temporary).write_text(text, encoding="utf-8")


def write_json(path, content, indent=1):
    """Write a JSON file atomically; a number that is not finite, as JSON has none, is null."""
    write(path, json.dumps(_finite(content), indent=indent, allow_nan=False) + "\n")


def _finite(content):
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [*map(_finite, content)]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def digest_of_hashes(hashes):
    """Return the SHA-256 of a dict of file names to hashes."""
    return digest(json.dumps(hashes, sort_keys=True))


def digest(*parts):
    """Return the SHA-256 of a sequence of str, with their lengths."""
    sha256 = hashlib.sha256()
    for part in parts:
        content = part.encode()
        sha256.update(len(content).to_bytes(8, "big") + content)
    return sha256.hexdigest()
