"""Status codes of TensorFlow Serving and what each becomes over HTTP."""

import enum


class Code(enum.IntEnum):
    """The canonical status codes, with the numbers that gRPC and TensorFlow give them."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


_HTTP_STATUS = {
    Code.OK: 200,
    Code.CANCELLED: 499,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
    Code.UNAUTHENTICATED: 401,
}


class ServingError(Exception):
    """An answer that is an error: a code and the sentence that the client reads.

    Args:
        code: `Code`.
        message: string, sent to the client as it is.
    """

    def __init__(self, code, message):
        super().__init__(message)
        self.code = Code(code)
        self.message = message

    def __str__(self):
        """The code's name and the message, as a TensorFlow status prints itself."""
        return f"{self.code.name}: {self.message}"

    @property
    def http_status(self):
        """The HTTP status code of the REST answer."""
        return _HTTP_STATUS.get(self.code, 500)


class TooLarge(ServingError):
    """The request is larger than this server takes: gRPC has no code of its own for that."""

    http_status = 413

    def __init__(self, message):
        super().__init__(Code.RESOURCE_EXHAUSTED, message)


def invalid_argument(message):
    """The commonest error: the request itself is wrong."""
    return ServingError(Code.INVALID_ARGUMENT, message)


def not_found(message):
    """The request names a model or a version that is not served."""
    return ServingError(Code.NOT_FOUND, message)
