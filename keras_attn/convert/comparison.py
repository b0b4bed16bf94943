"""Comparison of the outputs of a converted model with those of the other library."""

import numpy as np
from keras import ops

# Largest difference of outputs, relative to the largest output, by the model's compute dtype.
TOLERANCE = {"float16": 2.0**-7, "bfloat16": 2.0**-4}


def compare_outputs(theirs, ours, compute_dtype, float32_tolerance):
    """Return the largest difference, relative to the largest of `theirs`, and its tolerance."""
    theirs, ours = (ops.convert_to_numpy(ops.cast(x, "float32")) for x in (theirs, ours))
    difference = float(np.max(np.abs(theirs - ours)) / np.max(np.abs(theirs)))
    return difference, TOLERANCE.get(compute_dtype, float32_tolerance)
