"""Whether a model still answers as it did."""

import numpy as np


def same(expected, found, tolerance):
    """Whether two answers, arrays, are the same.

    Numbers may differ by so much of the greatest expected: other machines and other runtimes add
    up in another order. Types, shapes and all else must be equal.

    Example:
        >>> import numpy as np
        >>> from keras_attn.export.answers import same
        >>> same(np.array([0.0, 10.0]), np.array([0.009, 10.0]), tolerance=1e-3)
        True
    """
    if expected.dtype != found.dtype or expected.shape != found.shape:
        return False
    if expected.dtype.kind != "f":
        return np.array_equal(expected, found)
    allowed = tolerance * np.abs(expected).max(initial=1e-6)
    return np.allclose(expected, found, rtol=0, atol=allowed, equal_nan=True)
