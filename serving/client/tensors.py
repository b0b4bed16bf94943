"""Conversion of nested lists to and from `TensorProto`."""

import array
import itertools
import math

from .retries import ClientError

_STRING, _BOOL = 7, 10
_MOST_AXES = 254  # of TensorFlow
# By number of the type: its name, the field that holds its values, their code in `tensor_content`.
_TYPES = {
    1: ("float32", "float_val", "f"),
    2: ("float64", "double_val", "d"),
    3: ("int32", "int_val", "i"),
    4: ("uint8", "int_val", "B"),
    5: ("int16", "int_val", "h"),
    6: ("int8", "int_val", "b"),
    _STRING: ("string", "string_val", None),
    9: ("int64", "int64_val", "q"),
    _BOOL: ("bool", "bool_val", "B"),
    22: ("uint32", "uint32_val", "I"),
    23: ("uint64", "uint64_val", "Q"),
}


def write_tensor(proto, name, value, dtype):
    """Fill a `TensorProto` of a dtype (by number) with a value, nested lists or an array."""
    type_name, field, _ = _known(name, dtype)
    value = value.tolist() if hasattr(value, "tolist") else value
    proto.dtype = dtype
    values = [value]
    while values and isinstance(values[0], (list, tuple)):
        sizes = {len(row) if isinstance(row, (list, tuple)) else None for row in values}
        if len(sizes) > 1:
            raise ClientError(f"The lists of the input {name} must be of the same length.")
        proto.tensor_shape.dim.add(size=sizes.pop())
        if len(proto.tensor_shape.dim) > _MOST_AXES:
            raise ClientError(f"The lists of the input {name} are too deep, or hold themselves.")
        values = list(itertools.chain.from_iterable(values))
    try:
        if dtype == _STRING:
            values = [item.encode() if isinstance(item, str) else item for item in values]
        getattr(proto, field).extend(values)
    except (OverflowError, TypeError, ValueError) as error:
        raise ClientError(f"The input {name} must be {type_name}: {error}") from error


def read_tensor(name, proto):
    """Return a tensor as nested lists; strings are bytes where the name ends in `_bytes`."""
    _, field, code = _known(name, proto.dtype)
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_content:
        values = array.array(code, proto.tensor_content).tolist()
    else:
        values = list(getattr(proto, field))
        # Equal values up to the end may be written once.
        values += values[-1:] * (math.prod(shape) - len(values))
    if proto.dtype == _STRING and not name.endswith("_bytes"):
        values = [value.decode(errors="replace") for value in values]
    elif proto.dtype == _BOOL:
        values = [bool(value) for value in values]
    return _nested(iter(values), shape)


def _nested(values, shape):
    """Take as many values as the shape has, and put them into lists."""
    if len(shape) > 1:
        return [_nested(values, shape[1:]) for _ in range(shape[0])]
    return list(itertools.islice(values, shape[0])) if shape else next(values)


def _known(name, dtype):
    if dtype not in _TYPES:
        raise ClientError(f"The tensor {name} is of a type that cannot be sent: number {dtype}.")
    return _TYPES[dtype]
