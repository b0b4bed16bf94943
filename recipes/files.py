"""Files: the user's, found, unpacked or refused in one sentence; and ours, which appear whole."""

import contextlib
import fcntl
import gzip
import json
import os
import zlib
from pathlib import Path

_MAX_NAMES = 30


def find(directory, name):
    """The path of `name` in a directory, of its compressed form `name`.gz if there is one.

    Raises:
        ValueError: if there is no such directory, or neither file in it.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise ValueError(f"There is no such directory. Received: data_dir={str(directory)!r}")
    for path in (directory / f"{name}.gz", directory / name):
        if path.is_file():
            return path
    names = sorted(path.name for path in directory.iterdir() if path.is_file())
    listed = ", ".join(names[:_MAX_NAMES]) or "no file"
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    raise ValueError(
        f"There is no file {name}.gz or {name} in {directory}, which has {listed}{more}."
    )


def read(path):
    """The bytes of a file, uncompressed if its name ends in .gz.

    Raises:
        ValueError: if there is no such file, it is empty, or no complete gzip file.
    """
    path = Path(path)
    if not path.is_file():
        what = "is a directory, not a file" if path.is_dir() else "does not exist"
        raise ValueError(f"{path} {what}.")
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"The file {path} is not a complete gzip file: {error}") from error
    if not content:
        raise ValueError(f"The file {path} is empty.")
    return content


def read_object(path, remedy, *names):
    """What a run wrote as JSON, a dict.

    Args:
        path: str.
        remedy: str. What the user can do about a file that is damaged.
        *names: what it must tell.

    Raises:
        ValueError: if the file holds no such dict.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(name in found for name in names):
        raise ValueError(f"The file {path} is damaged; {remedy}.")
    return found


@contextlib.contextmanager
def claimed(directory):
    """A directory, made where it is missing, that no other process claims meanwhile.

    Raises:
        ValueError: if another one does.
    """
    os.makedirs(directory, exist_ok=True)
    handle = os.open(directory, os.O_RDONLY)
    try:
        try:  # the lock goes with the process, however that ends
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(
                f"Another process trains in {directory}: wait for it, stop it, or give another --out."
            ) from error
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def replacing(path):
    """A name to write to, of the same ending, which becomes `path` when all is written.

    It is always the same one, so that what a killed process left is written over.
    """
    temporary = "{}.tmp{}".format(*os.path.splitext(path))
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write(path, text):
    """Writes a text file, which appears complete or not at all."""
    with replacing(path) as temporary:
        Path(temporary).write_text(text, encoding="utf-8")
