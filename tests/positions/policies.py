"""A position table in half precision."""

import keras
import numpy as np
import oracles


def check_half_precision(layer, reference, x):
    """A layer in mixed bfloat16 returns the float32 layer's output as nearly as it can be."""
    output = layer(x)
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    np.testing.assert_allclose(oracles.numpy_of(output), reference(x), atol=2.0**-6)
