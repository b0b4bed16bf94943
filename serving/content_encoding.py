"""Bodies of requests that the client has compressed."""

import gzip
import io
import zlib

from .errors import invalid_argument

_PIECE = 1 << 16  # bytes of content between two looks at the limit


def decode_body(body, encoding, limits):
    """Return the content of a body, of at most as many bytes as a request may have.

    As on the real server, a body in another encoding than gzip is read as it is.
    """
    if "gzip" not in encoding:
        return body
    content = bytearray()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as file:
            while piece := file.read(_PIECE):
                content += piece
                limits.check_body(len(content))
    except (EOFError, OSError, zlib.error) as error:
        message = "The body must be gzip data, as its Content-Encoding says"
        raise invalid_argument(f"{message}. Received: {error}") from error
    return bytes(content)
