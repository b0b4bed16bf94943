"""Conversion of arrays to and from `TensorProto`."""

import numpy as np
import tensorflow as tf

from .errors import invalid_argument, require

FEW_VALUES = 4096  # are written in a millisecond
_FIELDS = {
    tf.float32: "float_val",
    tf.float64: "double_val",
    **dict.fromkeys((tf.int8, tf.int16, tf.int32, tf.uint8), "int_val"),
    tf.int64: "int64_val",
    tf.uint32: "uint32_val",
    tf.uint64: "uint64_val",
    tf.bool: "bool_val",
    tf.string: "string_val",
}


def dtype_name(dtype):
    """Return the name of a `tf.DType` in TensorFlow's C++ error messages."""
    return {"float32": "float", "float64": "double", "float16": "half"}.get(dtype.name, dtype.name)


def as_array(value):
    """Return a value that a session gave as an array; a string scalar comes as bytes."""
    return np.asarray(value, object if isinstance(value, bytes) else None)


def are_few(arrays):
    """Return True if the values of arrays are so few that writing them delays no other request."""
    return sum(getattr(array, "size", 1) for array in arrays) <= FEW_VALUES


def to_array(name, proto, limits=None):
    """Return the array that a client sent; strings are bytes objects."""
    sizes, message = [dim.size for dim in proto.tensor_shape.dim], f"tensor parsing error: {name}"
    require(not proto.tensor_shape.unknown_rank and min(sizes, default=0) >= 0, message)
    try:
        if limits:
            limits.check_shape(name, sizes, tf.as_dtype(proto.dtype))
        return tf.make_ndarray(proto)
    except (KeyError, MemoryError, OverflowError, TypeError, ValueError) as error:
        raise invalid_argument(message) from error


def check_tensors(tensors, limits):
    """Refuse tensors (arrays by input name) that are too large or have too long strings."""
    for name, array in tensors.items() if limits else ():
        limits.check_shape(name, list(array.shape), tf.as_dtype(array.dtype))
        longest = max(map(len, array.flat), default=0) if array.dtype == np.object_ else 0
        most = f"A string of input {name} must have at most {limits.max_string_bytes} bytes"
        require(longest <= limits.max_string_bytes, f"{most}. Received: {longest}")


def fill_proto(proto, array):
    """Fill an empty `TensorProto`, by the typed fields that clients read directly."""
    array = as_array(array)
    dtype = tf.as_dtype(array.dtype)
    field = _FIELDS.get(dtype)
    if field is None:
        proto.CopyFrom(tf.make_tensor_proto(array, dtype=dtype, shape=array.shape))
        return
    proto.dtype = dtype.as_datatype_enum
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    getattr(proto, field).extend(array.ravel().tolist())
