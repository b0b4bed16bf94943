"""Numbers to feed a layer, and how far two results are apart."""

import numpy as np


def random(*shape, seed=0, scale=1.0):
    """Normal numbers, the same ones for the same shape and seed."""
    return coarse(scale * np.random.default_rng([seed, *shape]).standard_normal(shape))


def coarse(x):
    """Rounded to 8 significant bits: exact in float32, float16 and bfloat16 alike.

    So a layer under a low precision starts from the same numbers, and what differs is its own.
    """
    mantissa, exponent = np.frexp(np.asarray(x, "float64"))
    return np.ldexp(np.round(mantissa * 256) / 256, exponent).astype("float32")


def equal(found, expected):
    """True if two results are the same, bit by bit."""
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(found, expected, strict=True))


def apart(found, expected, tolerance=1e-5):
    """None where two results are close, else in words how far they are apart.

    Close means within `tolerance` of the largest number expected, or of 1 if that is smaller.
    """
    for a, b in zip(found, expected, strict=True):
        if a.shape != b.shape:
            return f"the shape is {a.shape} instead of {b.shape}"
        if not a.size:
            continue
        difference = np.abs(a.astype("float64") - b.astype("float64"))
        worst = np.unravel_index(np.argmax(np.nan_to_num(difference, nan=np.inf)), a.shape)
        scale = max(1.0, np.max(np.abs(b)))
        if not difference[worst] <= tolerance * scale:
            place = tuple(int(index) for index in worst)
            return f"at {place} stands {a[worst]:.6g} instead of {b[worst]:.6g}"
    return None
