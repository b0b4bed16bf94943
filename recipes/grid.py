"""A text as rows of a grid, for what is made for images."""

import math


def grid(context):
    """Return the most square (rows, columns) with as many places as the context."""
    rows = next(n for n in range(math.isqrt(context), 0, -1) if context % n == 0)
    return rows, context // rows
