"""Bounds of what one request may bring; imports no TensorFlow, so that --help answers at once."""

import dataclasses
import math

from .errors import TooLarge, require

_POINTER = 8  # bytes of a string in an array, beside the string itself


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds of requests; the flags of the same names set them."""

    max_request_bytes: int = 256 << 20  # of a request's body, also decompressed, or message
    max_json_depth: int = 256  # lists and objects inside each other
    max_string_bytes: int = 16 << 20  # of one string of a tensor
    max_rows: int = 4096  # the first axis of a tensor
    # Integers, bools or strings of a tensor, rows times length. A model makes a vector of each, so
    # they take a thousand times the memory; floats are such already.
    max_ids: int = 1 << 20
    max_waiting_requests: int = 1000  # of one API, for a thread

    def check_body(self, size):
        """Refuse a body of more bytes than a request may have."""
        if size > (most := self.max_request_bytes):
            raise TooLarge(f"The request must have at most {most} bytes. Received: {size} or more")

    def check_depth(self, document, body):
        """Refuse a parsed body that is nested too deeply."""
        if body.count(b"[") + body.count(b"{") <= self.max_json_depth:
            return
        level, depth = [document], 0
        while level:
            depth += 1
            most = f"At most {self.max_json_depth} levels are allowed"
            message = f"JSON Parse error: Values are nested too deeply. {most}"
            require(depth <= self.max_json_depth, message)
            children = (x.values() if isinstance(x, dict) else x for x in level)
            level = [x for each in children for x in each if isinstance(x, (dict, list))]

    def check_shape(self, name, shape, dtype):
        """Refuse a tensor by its shape and `tf.DType`, before its memory is allocated.

        In a proto one value can stand for a whole shape, so a few bytes can ask for any amount.
        """
        rows, count, must = (shape or [0])[0], math.prod(shape), f"Input {name} must"
        message = f"{must} have at most {self.max_rows} rows. Received: {rows}"
        require(rows <= self.max_rows, message)
        message = f"{must} have at most {self.max_ids} values. Its shape {shape} has {count}"
        require(dtype.is_floating or dtype.is_complex or count <= self.max_ids, message)
        size, most = count * (dtype.size or _POINTER), f"at most {self.max_request_bytes} bytes"
        message = f"{must} take {most}. Its shape {shape} takes {size}"
        require(size <= self.max_request_bytes, message)
