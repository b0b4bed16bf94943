"""Text files that are compressed or not, as streams of bytes."""

import gzip
import io
import zlib

from ..common import files

CHUNK = 2**20


def open_text(path, start=0):
    """Open a file, uncompressed if its name ends in .gz or .zst, at a byte.

    Reading from a damaged one raises one of `damages()`.
    """
    kind = files.compression(path)
    if kind == ".gz":
        return gzip.open(path, "rb")
    if kind == ".zst":
        return io.BufferedReader(_Blocks(files.decompress_zstd(_compressed(path), path)), CHUNK)
    file = open(path, "rb", buffering=CHUNK)
    file.seek(start)
    return file


def damages():
    """Return the errors of files that are damaged or cut off."""
    return (gzip.BadGzipFile, EOFError, zlib.error)


class _Blocks(io.RawIOBase):
    """The blocks of bytes that an iterator yields, as a stream."""

    def __init__(self, blocks):
        self._blocks, self._ready = blocks, b""

    def readable(self):
        return True

    def readinto(self, buffer):
        try:
            self._ready = self._ready or next(self._blocks, b"")
        except OSError as error:
            if error.errno is not None:
                raise
            raise EOFError(str(error)) from error  # a damaged frame
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


def _compressed(path):
    with open(path, "rb") as file:
        yield from iter(lambda: file.read(CHUNK // 8), b"")
