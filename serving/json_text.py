"""JSON text of requests and answers."""

import base64
import json
import math
import re

import numpy as np
import tensorflow as tf

from .errors import invalid_argument, require
from .tensors import as_array, dtype_name

NUMBER_TOO_BIG = "JSON Parse error: Number too big to be stored in double."
_QUOTED_LENGTH = 256
_TYPE_NAMES = {dict: "Object", list: "Array", str: "String", int: "Number", float: "Number"}
_TYPE_NAMES[type(None)] = "Null"
_SURROGATE = re.compile("[\ud800-\udfff]")
_WHOLE = {tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint32, tf.uint64, tf.bool}
_DIGITS = {tf.float32: 9, tf.float64: 17}


def parse_object(body):
    """Return the JSON object at the start of a request's body; bytes after it are ignored.

    `NaN` and `Infinity` are numbers, and the last of equal keys counts. Bytes that are not UTF-8
    become surrogates, which `encode` turns back into the same bytes.
    """
    text = body.decode("utf-8", "surrogateescape").removeprefix("\ufeff").lstrip(" \t\r\n")
    require(text, "JSON Parse error: The document is empty")
    try:
        document, _ = _DECODER.raw_decode(text)
    except json.JSONDecodeError as error:
        raise invalid_argument(f"JSON Parse error: {error.msg} at offset: {error.pos}") from error
    except RecursionError as error:
        raise invalid_argument("JSON Parse error: Values are nested too deeply.") from error
    except ValueError as error:  # more digits than Python turns into an integer
        raise invalid_argument(NUMBER_TOO_BIG) from error
    if not isinstance(document, dict):
        raise invalid_argument(f"JSON Value: {quote(document)} Is not object")
    return document


def _finite(text):
    number = float(text)
    if math.isinf(number):
        raise invalid_argument(NUMBER_TOO_BIG)
    return number


_DECODER = json.JSONDecoder(parse_float=_finite)
_ENCODER = json.JSONEncoder(ensure_ascii=False)


def encode(text):
    """Return the bytes of a parsed string."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        message = "JSON Parse error: The surrogate pair in string is invalid."
        raise invalid_argument(message) from error


def dump(value):
    """Return a value as JSON bytes; the surrogates of `parse_object` become bytes again."""
    return _ENCODER.encode(value).encode("utf-8", "surrogateescape")


def dump_error(message):
    """Return the body of an error: always UTF-8, whatever the message quotes."""
    return _ENCODER.encode({"error": readable(message)}).encode()


def readable(text):
    """Replace the characters of a text that were not UTF-8."""
    return _SURROGATE.sub("\ufffd", text)


def quote(value):
    """Return a parsed value as error messages show it: JSON, cut to 256 characters."""
    text = ""
    for piece in _ENCODER.iterencode(value):
        text += piece
        if len(text) > _QUOTED_LENGTH:
            return f"{text[:_QUOTED_LENGTH]}..."
    return text


def type_name(value):
    """Return TensorFlow Serving's name of a parsed value's type."""
    return str(value) if isinstance(value, bool) else _TYPE_NAMES[type(value)]


def write_outputs(outputs, row):
    """Return a predict answer in row form (`predictions`) or in columns (`outputs`), for `dump`."""
    arrays = {name: as_array(value) for name, value in outputs.items()}
    if row:
        _check_rows(arrays)
    columns = {name: _to_json(name, array) for name, array in arrays.items()}
    if len(columns) == 1:
        return {"predictions" if row else "outputs": next(iter(columns.values()))}
    if not row:
        return {"outputs": columns}
    return {"predictions": [dict(zip(columns, values)) for values in zip(*columns.values())]}


def _check_rows(arrays):
    sizes = []
    for name, array in arrays.items():
        require(array.ndim, f"Tensor name: {name} has no shape information ")
        sizes.append(len(array))
        shown = f"{sizes[-1]} expecting: {sizes[0]}"
        same = sizes[-1] == sizes[0]
        require(same, f"Tensor name: {name} has inconsistent batch size: {shown}")


def _to_json(name, array):
    dtype = tf.as_dtype(array.dtype)
    if dtype in _WHOLE:
        return array.tolist()
    if dtype == tf.string and name.endswith("_bytes"):
        leaves = [{"b64": base64.b64encode(item).decode("ascii")} for item in array.ravel()]
    elif dtype == tf.string:
        leaves = [item.decode("utf-8", "surrogateescape") for item in array.ravel()]
    elif dtype in _DIGITS:
        leaves = decimals(array.ravel(), _DIGITS[dtype])
    else:
        raise invalid_argument(f"Failed to write JSON value for tensor type: {dtype_name(dtype)}")
    return np.fromiter(leaves, object).reshape(array.shape).tolist()


def decimals(array, digits):
    """Round floats to six digits where those give the float back, to `digits` otherwise.

    A float32 0.2 is then 0.2 in JSON, and not the 0.20000000298 that its bits are exactly.
    """
    exact = array.tolist()
    short = [float(f"{number:.6g}") for number in exact]
    with np.errstate(over="ignore"):
        same = np.array(short, np.float64).astype(array.dtype) == array
    return [
        six if is_same else float(f"{number:.{digits}g}")
        for number, six, is_same in zip(exact, short, same.tolist())
    ]
