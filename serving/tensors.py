"""Conversion of arrays to and from `TensorProto`."""

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto

from .errors import invalid_argument

_FIELDS = {
    tf.float32: "float_val",
    tf.float64: "double_val",
    tf.int8: "int_val",
    tf.int16: "int_val",
    tf.int32: "int_val",
    tf.uint8: "int_val",
    tf.int64: "int64_val",
    tf.uint32: "uint32_val",
    tf.uint64: "uint64_val",
    tf.bool: "bool_val",
}


def dtype_name(dtype):
    """Return the name of a `tf.DType` in TensorFlow's C++ error messages."""
    return {"float32": "float", "float64": "double", "float16": "half"}.get(dtype.name, dtype.name)


def to_array(name, proto, limits=None):
    """Return the array that a client sent; strings are bytes objects.

    Args:
        name: string. The input's name, for the error.
        proto: `TensorProto`.
        limits: `Limits` or None. Bounds of the array.

    Raises:
        ServingError: if the proto's shape, type and values do not fit together, or its shape is
            too large.
    """
    sizes = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_shape.unknown_rank or min(sizes, default=0) < 0:
        raise invalid_argument(f"tensor parsing error: {name}")
    try:
        if limits:
            limits.check_shape(name, sizes, tf.as_dtype(proto.dtype))
        return tf.make_ndarray(proto)
    except (KeyError, MemoryError, OverflowError, TypeError, ValueError) as error:
        raise invalid_argument(f"tensor parsing error: {name}") from error


def to_proto(array):
    """Return a `TensorProto` with the typed fields that clients read directly.

    Args:
        array: numpy array, or a bytes object (a string scalar, as a session returns it).
    """
    array = np.asarray(array, dtype=object) if isinstance(array, bytes) else np.asarray(array)
    dtype = tf.as_dtype(array.dtype)
    field = _FIELDS.get(dtype)
    if field is None:
        return tf.make_tensor_proto(array, dtype=dtype, shape=array.shape)
    proto = TensorProto()
    proto.dtype = dtype.as_datatype_enum
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    getattr(proto, field).extend(array.ravel().tolist())
    return proto
