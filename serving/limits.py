"""Bounds of what one request may bring."""

import dataclasses
import math

import numpy as np
import tensorflow as tf

from .errors import TooLarge, invalid_argument, require

_POINTER = 8  # bytes of a string in an array, beside the string itself


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds of requests; the flags of the same names set them."""

    max_request_bytes: int = 256 << 20  # of a request's body or message
    max_json_depth: int = 256  # lists and objects inside each other
    max_string_bytes: int = 16 << 20  # of one string of a tensor
    max_rows: int = 4096  # the first axis of a tensor
    # Integers, bools or strings of a tensor, rows times length. A model makes a vector of each, so
    # they take a thousand times the memory; floats are such already.
    max_ids: int = 1 << 20
    max_waiting_requests: int = 1000  # of one API, for a thread

    def check_body(self, size):
        """Refuse a body of more bytes than a request may have."""
        if size > self.max_request_bytes:
            most = f"at most {self.max_request_bytes} bytes"
            raise TooLarge(f"The request must have {most}. Received: {size} or more")

    def check_depth(self, document, body):
        """Refuse a parsed body that is nested too deeply."""
        if body.count(b"[") + body.count(b"{") <= self.max_json_depth:
            return
        level, depth = [document], 0
        while level:
            depth += 1
            if depth > self.max_json_depth:
                raise invalid_argument(
                    "JSON Parse error: Values are nested too deeply. At most "
                    f"{self.max_json_depth} levels are allowed"
                )
            level = [
                child
                for value in level
                for child in (value.values() if isinstance(value, dict) else value)
                if isinstance(child, (dict, list))
            ]

    def check_shape(self, name, shape, dtype):
        """Refuse a tensor by its shape, before its memory is allocated.

        In a proto one value can stand for a whole shape, so a few bytes can ask for any amount.
        """
        rows, count = (shape or [0])[0], math.prod(shape)
        most = f"Input {name} must have at most {self.max_rows} rows"
        require(rows <= self.max_rows, f"{most}. Received: {rows}")
        most = f"Input {name} must have at most {self.max_ids} values"
        free = dtype.is_floating or dtype.is_complex
        require(free or count <= self.max_ids, f"{most}. Its shape {shape} has {count}")
        size = count * (dtype.size or _POINTER)
        most = f"Input {name} must take at most {self.max_request_bytes} bytes"
        require(size <= self.max_request_bytes, f"{most}. Its shape {shape} takes {size}")

    def check_tensors(self, tensors):
        """Refuse tensors (arrays by input name) that are too large or have too long strings."""
        for name, array in tensors.items():
            self.check_shape(name, list(array.shape), tf.as_dtype(array.dtype))
            if array.dtype != np.object_:
                continue
            longest = max(map(len, array.flat), default=0)
            most = f"A string of input {name} must have at most {self.max_string_bytes} bytes"
            require(longest <= self.max_string_bytes, f"{most}. Received: {longest}")
