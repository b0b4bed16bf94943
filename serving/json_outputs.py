"""Predict answers in JSON: row form (`predictions`) and column form (`outputs`)."""

import base64

import numpy as np
import tensorflow as tf

from .errors import invalid_argument
from .tensor_proto import dtype_name

_WHOLE = {tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint32, tf.uint64, tf.bool}
_DIGITS = {tf.float32: 9, tf.float64: 17}


def write_outputs(outputs, row):
    """A predict answer.

    Args:
        outputs: dictionary from output name to array, not empty.
        row: bool. True for the row form.

    Returns:
        Dictionary, ready for `json_text.dump`.

    Raises:
        ServingError: if an output's dtype has no JSON form, or if rows are asked for and the
            outputs do not have the same first dimension.
    """
    arrays = {
        name: np.asarray(value, dtype=object if isinstance(value, bytes) else None)
        for name, value in outputs.items()
    }
    if row:
        _check_rows(arrays)
    columns = {name: _to_json(name, array) for name, array in arrays.items()}
    single = next(iter(columns.values())) if len(columns) == 1 else None
    if not row:
        return {"outputs": columns if single is None else single}
    if single is not None:
        return {"predictions": single}
    return {"predictions": [dict(zip(columns, values)) for values in zip(*columns.values())]}


def _check_rows(arrays):
    batch = None
    for name, array in arrays.items():
        if array.ndim == 0:
            raise invalid_argument(f"Tensor name: {name} has no shape information ")
        if batch is not None and len(array) != batch:
            raise invalid_argument(
                f"Tensor name: {name} has inconsistent batch size: {len(array)} expecting: {batch}"
            )
        batch = len(array)


def _to_json(name, array):
    dtype = tf.as_dtype(array.dtype)
    if dtype in _WHOLE:
        return array.tolist()
    if dtype == tf.string:
        write = _write_bytes if name.endswith("_bytes") else write_text
        leaves = [write(item) for item in array.ravel()]
    elif dtype in _DIGITS:
        leaves = decimals(array.ravel(), _DIGITS[dtype])
    else:
        raise invalid_argument(f"Failed to write JSON value for tensor type: {dtype_name(dtype)}")
    nested = np.empty(len(leaves), object)
    nested[:] = leaves
    return nested.reshape(array.shape).tolist()


def decimals(array, digits):
    """Numbers of six digits where those give the float back, and of all its digits otherwise.

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


def write_text(value):
    """A string of a tensor as `json_text.dump` wants it."""
    return value.decode("utf-8", "surrogateescape")


def _write_bytes(value):
    return {"b64": base64.b64encode(value).decode("ascii")}
