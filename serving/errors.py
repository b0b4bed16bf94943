"""Status codes and errors of both APIs."""

try:
    import grpc
except ImportError as error:
    raise ImportError("The server needs pip install 'keras_attn[serving]'.") from error

Code = grpc.StatusCode
_BY_NUMBER = {code.value[0]: code for code in Code}
_HTTP_STATUS = {  # 500 for the others
    Code.OK: 200,
    **dict.fromkeys((Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION, Code.OUT_OF_RANGE), 400),
    Code.UNAUTHENTICATED: 401,
    Code.PERMISSION_DENIED: 403,
    Code.NOT_FOUND: 404,
    **dict.fromkeys((Code.ALREADY_EXISTS, Code.ABORTED), 409),
    Code.RESOURCE_EXHAUSTED: 429,
    Code.CANCELLED: 499,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
    Code.DEADLINE_EXCEEDED: 504,
}


class ServingError(Exception):
    """Error that a client receives: a `Code` (or its number) and one sentence."""

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


def require(condition, message):
    """Raise the error of a request that is wrong unless a condition holds."""
    if not condition:
        raise invalid_argument(message)
