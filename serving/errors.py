"""Status codes and errors of both APIs."""

import grpc

Code = grpc.StatusCode
_BY_NUMBER = {code.value[0]: code for code in Code}
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
    """Error that a client receives: a status code and one sentence.

    Args:
        code: `Code`, or its number.
        message: string, sent to the client as it is.
    """

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code if isinstance(code, Code) else _BY_NUMBER[code]
        self.message = message

    def __str__(self):
        """Return the code's name and the message, as a TensorFlow status prints itself."""
        return f"{self.code.name}: {self.message}"

    @property
    def http_status(self):
        """HTTP status of the REST answer."""
        return _HTTP_STATUS.get(self.code, 500)


class TooLarge(ServingError):
    """Request of too many bytes: HTTP has a status for it, gRPC does not."""

    http_status = 413

    def __init__(self, message):
        super().__init__(Code.RESOURCE_EXHAUSTED, message)


def invalid_argument(message):
    """Return the error of a request that is wrong."""
    return ServingError(Code.INVALID_ARGUMENT, message)


def not_found(message):
    """Return the error of a request for a model or a version that is not served."""
    return ServingError(Code.NOT_FOUND, message)
