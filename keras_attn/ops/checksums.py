"""Numbers by which two copies of a weight are compared."""

import numpy as np
from keras import ops

# Relative to a weight's norm: loading may change a weight's precision only.
WEIGHTS_DIFFER = 1e-2


def checksum(values):
    """Return the dot product of an array with fixed numbers, and its norm."""
    numbers = ops.convert_to_numpy(ops.cast(values, "float32"))
    rows = numbers.reshape(-1, numbers.shape[-1] if numbers.ndim else 1)
    first, last = (np.cos(np.arange(size), dtype="float32") for size in rows.shape)
    return first @ (rows @ last), np.linalg.norm(rows)


def checksums_differ(saved, found):
    """Return a boolean for each pair of a saved and a found checksum, (..., 2): True if far."""
    return np.abs(saved - found)[..., 0] > WEIGHTS_DIFFER * saved[..., 1]
