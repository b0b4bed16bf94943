"""JSON values to arrays: what JSON types, shapes and ranges a tensor accepts."""

import base64
import binascii
import typing

import numpy as np
import tensorflow as tf

from .errors import Code, ServingError, invalid_argument
from .json_text import NUMBER_TOO_BIG, encode, quote, type_name
from .tensor_proto import dtype_name

_MAX_RANK = 254  # of a TensorFlow shape
_MAX_ARRAY_RANK = 64  # of a NumPy array


class _Kind(typing.NamedTuple):
    """The JSON types that a dtype accepts, its bounds, and the dtype that holds its values."""

    types: frozenset
    holder: object
    bounds: tuple | None = None


def _integers(holder):
    info = np.iinfo(holder)
    return _Kind(frozenset([int]), holder, (info.min, info.max))


_NUMBER = _Kind(frozenset([int, float]), np.float64)
_KINDS = {
    tf.float32: _NUMBER,
    tf.float64: _NUMBER,
    # The smaller integers are read as int32 and then wrap around, as in a TensorProto.
    tf.int8: _integers(np.int32),
    tf.int16: _integers(np.int32),
    tf.int32: _integers(np.int32),
    tf.uint8: _integers(np.int32),
    tf.int64: _integers(np.int64),
    tf.uint32: _integers(np.uint32),
    tf.uint64: _integers(np.uint64),
    tf.bool: _Kind(frozenset([bool]), np.bool_),
    tf.string: _Kind(frozenset([str]), object),
}


def is_object(value):
    """True for a JSON object that names tensors; `{"b64": "..."}` is a string."""
    return isinstance(value, dict) and not _is_base64(value)


def shape_and_leaves(name, value, dtype):
    """The shape of a JSON value and its leaves in row-major order.

    Args:
        name: string. The input's name, for errors.
        value: parsed JSON.
        dtype: `tf.DType` of the input.

    Returns:
        Pair of lists.

    Raises:
        ServingError: if the value is ragged or a leaf is not of the dtype.
    """
    shape = []
    first = value
    while isinstance(first, list):
        shape.append(len(first))
        first = first[0] if first else None
    if len(shape) > _MAX_RANK:
        raise invalid_argument(f"tensor parsing error: {name}")
    leaves = []
    _fill(value, 0, shape, dtype, leaves)
    return shape, leaves


def build(name, leaves, shape, dtype):
    """The array of the leaves that `shape_and_leaves` gave.

    Raises:
        ServingError: if NumPy holds no such array.
    """
    if len(shape) > _MAX_ARRAY_RANK:
        raise invalid_argument(
            f"Input {name} must have at most {_MAX_ARRAY_RANK} dimensions. Received: {len(shape)}"
        )
    holder = _KINDS[dtype].holder if leaves else dtype.as_numpy_dtype
    if holder is object:
        array = np.empty(len(leaves), object)
        array[:] = leaves
        return array.reshape(shape)
    try:
        array = np.array(leaves, holder)
    except OverflowError as error:
        raise invalid_argument(NUMBER_TOO_BIG) from error
    with np.errstate(over="ignore"):
        return array.astype(dtype.as_numpy_dtype).reshape(shape)


def _fill(value, level, shape, dtype, leaves):
    rank = len(shape)
    if not isinstance(value, list):
        if level != rank:
            raise invalid_argument(
                f"JSON Value: {quote(value)} found at incorrect level: {level + 1} in the JSON "
                f"DOM. Expected at level: {rank}"
            )
        leaves.append(_leaf(value, dtype))
        return
    if level >= rank:
        raise invalid_argument(f"Encountered list at unexpected level: {level} expected < {rank}")
    if len(value) != shape[level]:
        raise invalid_argument(
            f"Encountered list at unexpected size: {len(value)} at level: {level} expected size: "
            f"{shape[level]}"
        )
    # A list of good leaves is taken whole; a walk finds the leaf to blame in any other.
    if level == rank - 1 and _all_fit(value, dtype):
        leaves.extend(map(encode, value) if dtype == tf.string else value)
        return
    for item in value:
        _fill(item, level + 1, shape, dtype, leaves)


def _all_fit(values, dtype):
    kind = _KINDS.get(dtype)
    if kind is None or not kind.types.issuperset(map(type, values)):
        return False
    if kind.bounds is None or not values:
        return True
    return kind.bounds[0] <= min(values) and max(values) <= kind.bounds[1]


def _leaf(value, dtype):
    if dtype == tf.string and isinstance(value, dict):
        return decode_base64(value)
    if dtype not in _KINDS:
        raise ServingError(
            Code.UNIMPLEMENTED,
            f"Conversion of JSON Value: {quote(value)} to type: {dtype_name(dtype)}",
        )
    if not _all_fit([value], dtype):
        raise invalid_argument(
            f"JSON Value: {quote(value)} Type: {type_name(value)} is not of expected type: "
            f"{dtype_name(dtype)}"
        )
    return encode(value) if dtype == tf.string else value


def decode_base64(value):
    """The bytes of `{"b64": "..."}`.

    Raises:
        ServingError: if the value is anything else.
    """
    if not _is_base64(value):
        raise invalid_argument(
            f"JSON Value: {quote(value)} not formatted correctly for base64 data"
        )
    # Padding is optional and white space is allowed.
    text = encode("".join(value["b64"].split()).rstrip("="))
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise invalid_argument("Unable to base64 decode") from error


def _is_base64(value):
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("b64"), str)
