"""Text files that are compressed or not, as streams of bytes."""

import gzip
import io
import zlib

from .sources import compression

CHUNK = 2**20


def open_text(path, start=0):
    """Open a file, uncompressed if its name ends in .gz or .zst, at a byte.

    Reading from a damaged one raises one of `damages()`.
    """
    kind = compression(path)
    if kind == ".gz":
        return gzip.open(path, "rb")
    if kind == ".zst":
        return io.BufferedReader(_Zstandard(path), CHUNK)
    file = open(path, "rb", buffering=CHUNK)
    file.seek(start)
    return file


def damages():
    """Return the errors of files that are damaged or cut off."""
    return (gzip.BadGzipFile, EOFError, zlib.error)


def zstandard():
    """Return the package zstandard."""
    try:
        import zstandard
    except ImportError as error:
        raise ImportError(
            "Files .zst need the package zstandard: pip install 'keras_attn[recipes]'"
        ) from error
    return zstandard


class _Zstandard(io.RawIOBase):
    """Uncompressed bytes of a .zst of any number of frames.

    The package's own reader takes a file that is cut off for one that ends.
    """

    def __init__(self, path):
        package = zstandard()
        self._file, self._new, self._error = open(path, "rb"), package, package.ZstdError
        self._frame, self._rest, self._ready = None, b"", b""

    def readable(self):
        return True

    def readinto(self, buffer):
        while not self._ready:
            data = self._rest or self._file.read(CHUNK // 8)
            if not data:
                if self._frame is not None:
                    raise EOFError("The file ends within a frame.")
                return 0
            if self._frame is None:
                self._frame = self._new.ZstdDecompressor().decompressobj()
            try:
                self._ready = self._frame.decompress(data)
            except self._error as error:
                raise EOFError(str(error)) from error
            self._rest = b""
            if self._frame.eof:
                self._rest, self._frame = self._frame.unused_data, None
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def close(self):
        self._file.close()
        super().close()
