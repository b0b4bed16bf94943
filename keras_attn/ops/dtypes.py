"""Dtypes of sums and exponentials, which low precision would spoil."""

from keras import backend, ops


def at_least_float32(x):
    """Return a tensor as float64 if it is that, else as float32."""
    return x if backend.standardize_dtype(x.dtype) == "float64" else ops.cast(x, "float32")
