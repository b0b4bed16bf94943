"""Bodies of requests that the client has compressed."""

import zlib

from .errors import invalid_argument, require

_GZIP = 16 + zlib.MAX_WBITS  # the format, as zlib names it
_MUST = "The body must be gzip data, as its Content-Encoding says"


def decode_body(body, encoding, limits):
    """Return the content of a body, of at most as many bytes as a request may have.

    As on the real server, a body in another encoding than gzip is read as it is.
    """
    if "gzip" not in encoding:
        return body
    stream = zlib.decompressobj(_GZIP)
    try:
        content = stream.decompress(body, limits.max_request_bytes + 1)
    except zlib.error as error:
        raise invalid_argument(f"{_MUST}. Received: {error}") from error
    limits.check_body(len(content))
    require(stream.eof, f"{_MUST}. Received: data without an end")
    return content
