"""Files whose size and hash are known beforehand, read in pieces that nothing keeps."""

import functools
import hashlib
import os

_MOST_OPEN = 256
_MOST_BYTES = 2**26  # of one read; Linux never reads 2 GiB at once


class CheckedFile:
    """A file of a known size and SHA-256, read by `os.pread`.

    The size is compared at once. The hash is computed when something of the file is first read,
    once a process, at some 1.4 GB/s.

    Args:
        path: str.
        size: int. Its bytes.
        sha256: str. Their hash in hexadecimal digits.

    Raises:
        ValueError: if the file is missing, or has another size.
    """

    def __init__(self, path, size, sha256):
        try:
            found = os.stat(path)
        except FileNotFoundError as error:
            raise ValueError(f"The file {path} of a corpus is missing.") from error
        if found.st_size != size:
            raise ValueError(
                f"The file {path} of a corpus is not the one that was written: it has "
                f"{found.st_size} bytes, not {size}; restore it, or make the corpus again."
            )
        self.path, self.size = path, size
        # A file that is replaced or altered later is refused when it is opened again.
        self._key = path, sha256, size, found.st_ino, found.st_mtime_ns

    def read(self, start, stop):
        """Return the bytes from `start` to `stop`; refuse a short read."""
        descriptor = _opened(*self._key)
        parts = []
        while start < stop:
            part = os.pread(descriptor.number, min(stop - start, _MOST_BYTES), start)
            if not part:
                raise ValueError(f"The file {self.path} of a corpus ends at byte {start}.")
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class _Descriptor:
    """An open file, closed with the last reference, so never while another thread reads it."""

    def __init__(self, path):
        self.number = os.open(path, os.O_RDONLY)

    def __del__(self):
        if hasattr(self, "number"):
            os.close(self.number)


@functools.lru_cache(_MOST_OPEN)
def _opened(path, sha256, *identity):
    descriptor = _Descriptor(path)
    found = os.fstat(descriptor.number)
    if (found.st_size, found.st_ino, found.st_mtime_ns) != identity:
        raise ValueError(f"The file {path} of a corpus was replaced after it was opened first.")
    _check_hash(path, sha256, *identity)
    return descriptor


@functools.lru_cache(None)
def _check_hash(path, sha256, *identity):
    if hash_of(path) != sha256:
        raise ValueError(
            f"The file {path} of a corpus is not the one that was written: its SHA-256 differs; "
            "restore it, or make the corpus again."
        )


def hash_of(path):
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
