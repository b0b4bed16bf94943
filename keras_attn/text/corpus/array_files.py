"""Many files of numbers as one array, of files whose size and hash are known beforehand."""

import bisect
import functools
import hashlib
import itertools
import os

import numpy as np


class ArrayFiles:
    """Numbers in many files as one array, of which nothing is kept in memory.

    Args:
        files: list of `CheckedFile`s.
        dtype: str. Of the numbers in the files, such as "<u2".
        result: str. dtype of the arrays that slices give.
        start, stop: ints. The part of all numbers that is the array; all of them by default.
    """

    def __init__(self, files, dtype, result, start=0, stop=None):
        self._files, self._dtype, self._result = files, np.dtype(dtype), result
        self._ends = [*itertools.accumulate(file.size // self._dtype.itemsize for file in files)]
        whole = self._ends[-1] if files else 0
        self._start, self._stop = start, whole if stop is None else stop

    def __len__(self):
        return self._stop - self._start

    def __getitem__(self, cut):
        if not isinstance(cut, slice):
            place = range(len(self))[cut]
            return self[place : place + 1][0]
        start, stop, step = cut.indices(len(self))
        if step != 1:
            raise ValueError(f"Slices of files must have step 1. Received: step={step}.")
        parts = [*self._parts(self._start + start, self._start + stop)]
        if len(parts) != 1:
            parts = [np.concatenate([np.empty(0, self._dtype), *parts])]
        return parts[0].astype(self._result)

    def part(self, start, stop):
        """Return the same as `[start:stop]`, without reading it."""
        start, stop, _ = slice(start, stop).indices(len(self))
        first = self._start
        stop = max(start, stop)
        return ArrayFiles(self._files, self._dtype, self._result, first + start, first + stop)

    def _parts(self, start, stop):
        index = bisect.bisect_right(self._ends, start)
        while start < stop:
            first = self._ends[index - 1] if index else 0
            end = min(stop, self._ends[index])
            if start < end:  # else the file is empty
                places = ((place - first) * self._dtype.itemsize for place in (start, end))
                yield np.frombuffer(self._files[index].read(*places), self._dtype)
            start, index = end, index + 1


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
            status = os.stat(path)
        except FileNotFoundError as error:
            raise ValueError(f"The file {path} of a corpus is missing.") from error
        if status.st_size != size:
            raise ValueError(
                f"The file {path} of a corpus is not the one that was written: it has "
                f"{status.st_size} bytes, not {size}; restore it, or make the corpus again."
            )
        self.path, self.size = path, size
        # A file that is replaced or altered later is refused when it is opened again.
        self._key = path, sha256, size, status.st_ino, status.st_mtime_ns

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
    status = os.fstat(descriptor.number)
    if (status.st_size, status.st_ino, status.st_mtime_ns) != identity:
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
