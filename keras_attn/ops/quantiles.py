"""Quantiles of forecasts: their levels, and the pinball loss."""

import numbers
from collections.abc import Iterable

from keras import ops

from keras_attn.ops.checks import check_that


def pinball(y, quantiles, levels):
    """Return 2 |(y - q) ((y <= q) - level)| in the shape of the `quantiles` (..., Q)."""
    y, levels = ops.expand_dims(y, -1), ops.convert_to_tensor(levels, quantiles.dtype)
    is_below = ops.cast(y <= quantiles, quantiles.dtype)
    return 2.0 * ops.abs((y - quantiles) * (is_below - levels))


def checked_levels(levels, name="levels"):
    """Return the levels of quantiles as a tuple of floats.

    Raises:
        ValueError: if there is none, or one is not between 0 and 1; `name` is that of the argument.
    """
    levels = tuple(levels) if isinstance(levels, Iterable) else (levels,)
    fit = len(levels) > 0 and all(isinstance(x, numbers.Real) and 0 < x < 1 for x in levels)
    check_that(fit, "numbers between 0 and 1", **{name: levels})
    return tuple(map(float, levels))
