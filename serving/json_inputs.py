"""Predict requests in JSON to arrays: row form (`instances`) and column form (`inputs`).

Checks, their order and their messages are those of TensorFlow Serving's `util/json_tensor.cc`.
"""

import base64
import binascii
import math

import numpy as np
import tensorflow as tf

from .errors import Code, ServingError, invalid_argument, require
from .json_text import NUMBER_TOO_BIG, encode, quote, readable, type_name
from .tensors import dtype_name

_MAX_RANK = 254  # of a TensorFlow shape
_MAX_ARRAY_RANK = 64  # of a NumPy array
_SEVERAL = "as multiple input tensors required as per tensorinfo_map"

# By dtype, the JSON types that it accepts and the dtype that holds their values.
_KINDS = {
    **dict.fromkeys((tf.float32, tf.float64), ({int, float}, np.float64)),
    # The smaller integers are read as int32 and then wrap around, as in a TensorProto.
    **dict.fromkeys((tf.int8, tf.int16, tf.int32, tf.uint8), ({int}, np.int32)),
    tf.int64: ({int}, np.int64),
    tf.uint32: ({int}, np.uint32),
    tf.uint64: ({int}, np.uint64),
    tf.bool: ({bool}, np.bool_),
    tf.string: ({str}, object),
}


def read_signature_name(document):
    """Return the request's `signature_name`, or "" for the default one."""
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        message = "not formatted correctly. 'signature_name' key must be a string value."
        raise format_error(document, message)
    return readable(name)


def read_inputs(document, dtypes, optional=()):
    """Return the tensors of a parsed predict request by name, and True if it is in row form.

    `dtypes` has the `tf.DType` of each input by name. A request may leave out the `optional` ones,
    in all of its rows.
    """
    names = _named_inputs(document)
    dtypes = {n: dtype for n, dtype in dtypes.items() if n in names or n not in optional}
    if "instances" in document and "inputs" in document:
        only_one = "expecting only one of 'inputs' or 'instances' keys to exist "
        raise format_error(document, f"Not formatted correctly {only_one}")
    if "instances" in document:
        instances = document["instances"]
        if not isinstance(instances, list):
            raise format_error(document, "Expecting 'instances' to be an list/array")
        if not instances:
            raise format_error(document, "No values in 'instances' array")
        return _read_rows(instances, dtypes), True
    if "inputs" in document:
        return _read_columns(document["inputs"], dtypes), False
    raise invalid_argument("Missing 'inputs' or 'instances' key")


def _named_inputs(document):
    """Return the names of the inputs in a request, of the first row in row form."""
    value = document.get("instances", document.get("inputs"))
    value = value[0] if isinstance(value, list) and value else value
    return value.keys() if is_object(value) else ()


def is_object(value):
    """True for a JSON object that names tensors; `{"b64": "..."}` is a string."""
    return isinstance(value, dict) and not _is_base64(value)


def decode_base64(value):
    """Return the bytes of `{"b64": "..."}`; padding is optional, white space is allowed."""
    if not _is_base64(value):
        raise format_error(value, "not formatted correctly for base64 data")
    text = encode("".join(value["b64"].split()).rstrip("="))
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise invalid_argument("Unable to base64 decode") from error


def format_error(value, message):
    """Return the error of a JSON value of the wrong form."""
    return invalid_argument(f"JSON Value: {quote(value)} {message}")


def _is_base64(value):
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("b64"), str)


def _read_rows(instances, dtypes):
    plain = "instances is a plain list, but expecting list of objects"
    require(isinstance(instances[0], dict) or len(dtypes) == 1, f"{plain} {_SEVERAL}")
    named = is_object(instances[0])
    only = next(iter(dtypes))
    shapes, columns = {}, {}
    for index, instance in enumerate(instances):
        kinds = "object but got list" if named else "value/list but got object"
        same = named == is_object(instance)
        require(same, f"Expecting {kinds} at item {index} of input list")
        for name, item in (instance if named else {only: instance}).items():
            try:
                _add_item(name, item, dtypes, shapes, columns)
            except ServingError as error:
                key = f" key: {name}" if named else ""
                raise invalid_argument(
                    f"Failed to process element: {index}{key} of 'instances' list. Error: {error}"
                ) from error
        if named and instance.keys() != dtypes.keys():
            raise invalid_argument(
                f"Failed to process element: {index} of 'instances' list. JSON object: "
                f"{quote(instance)} keys must be equal to: {','.join(sorted(dtypes))}"
            )
    return {
        name: _build(name, leaves, [len(instances), *shapes[name]], dtypes[name])
        for name, leaves in columns.items()
    }


def _add_item(name, item, dtypes, shapes, columns):
    require(name in dtypes, f"JSON object: does not have named input: {name}")
    shape, leaves = _shape_and_leaves(name, item, dtypes[name])
    expected = shapes.setdefault(name, shape)
    size = math.prod(expected)
    require(size == len(leaves), f"Expecting tensor size: {size} but got: {len(leaves)}")
    if expected != shape:
        wanted, got = (f"[{','.join(map(str, sizes))}]" for sizes in (expected, shape))
        raise invalid_argument(f"Expecting shape {wanted} but got: {got}")
    columns.setdefault(name, []).extend(leaves)


def _read_columns(inputs, dtypes):
    if not is_object(inputs):
        plain = "inputs is a plain value/list, but expecting an object"
        require(len(dtypes) == 1, f"{plain} {_SEVERAL}")
        inputs = {next(iter(dtypes)): inputs}
    arrays = {}
    for name, dtype in dtypes.items():
        require(name in inputs, f"Missing named input: {name} in 'inputs' object.")
        shape, leaves = _shape_and_leaves(name, inputs[name], dtype)
        arrays[name] = _build(name, leaves, shape, dtype)
    return arrays


def _shape_and_leaves(name, value, dtype):
    """Return the shape of a JSON value and its leaves in row-major order."""
    shape, leaves, first = [], [], value
    while isinstance(first, list):
        shape.append(len(first))
        first = first[0] if first else None
    require(len(shape) <= _MAX_RANK, f"tensor parsing error: {name}")
    _fill(value, 0, shape, dtype, leaves)
    return shape, leaves


def _fill(value, level, shape, dtype, leaves):
    rank = len(shape)
    if not isinstance(value, list):
        if level != rank:
            levels = f"level: {level + 1} in the JSON DOM. Expected at level: {rank}"
            raise format_error(value, f"found at incorrect {levels}")
        leaves.append(_leaf(value, dtype))
        return
    require(level < rank, f"Encountered list at unexpected level: {level} expected < {rank}")
    sizes = f"{len(value)} at level: {level} expected size: {shape[level]}"
    require(len(value) == shape[level], f"Encountered list at unexpected size: {sizes}")
    # A list of good leaves is taken whole; a walk finds the leaf to blame in any other.
    if level == rank - 1 and _all_fit(value, dtype):
        leaves.extend(map(encode, value) if dtype == tf.string else value)
        return
    for item in value:
        _fill(item, level + 1, shape, dtype, leaves)


def _all_fit(values, dtype):
    types, holder = _KINDS.get(dtype, (frozenset(), None))
    if not types.issuperset(map(type, values)):
        return False
    if types != {int} or not values:
        return True
    return np.iinfo(holder).min <= min(values) and max(values) <= np.iinfo(holder).max


def _leaf(value, dtype):
    if dtype == tf.string and isinstance(value, dict):
        return decode_base64(value)
    if dtype not in _KINDS:
        message = f"Conversion of JSON Value: {quote(value)} to type: {dtype_name(dtype)}"
        raise ServingError(Code.UNIMPLEMENTED, message)
    if not _all_fit([value], dtype):
        expected = f"is not of expected type: {dtype_name(dtype)}"
        raise format_error(value, f"Type: {type_name(value)} {expected}")
    return encode(value) if dtype == tf.string else value


def _build(name, leaves, shape, dtype):
    """Return the array of leaves in row-major order."""
    most = f"Input {name} must have at most {_MAX_ARRAY_RANK} dimensions"
    require(len(shape) <= _MAX_ARRAY_RANK, f"{most}. Received: {len(shape)}")
    holder = _KINDS[dtype][1] if leaves else dtype.as_numpy_dtype
    if holder is object:
        return np.fromiter(leaves, object).reshape(shape)
    try:
        array = np.array(leaves, holder)
    except OverflowError as error:
        raise invalid_argument(NUMBER_TOO_BIG) from error
    with np.errstate(over="ignore"):
        return array.astype(dtype.as_numpy_dtype).reshape(shape)
