"""Positions as places in a grid, in row-major order."""

import math

from keras import ops

from keras_attn.ops.checks import check_integers, check_positions, check_shape


def grid_positions(x, positions, shape):
    """The positions (T,) or (B, T) of `x` (B, T, D), 0 .. T-1 by default, as int32.

    Refuses a sequence that is known to be longer than the grid.
    """
    check_shape(x, "x", (None, None, None))
    length = x.shape[1]
    if positions is not None:
        positions = check_positions(positions, "positions", *x.shape[:2])
        check_integers(positions, "positions")
        return ops.cast(positions, "int32")
    if length is not None and length > math.prod(shape):
        raise ValueError(
            "`x` is longer than the grid of positions. "
            f"Received: length {length}, a grid of {' x '.join(map(str, shape))}."
        )
    return ops.arange(ops.shape(x)[1], dtype="int32")


def grid_places(positions, shape):
    """The place of each position on each axis of a grid: the last axis runs fastest.

    A position beyond the grid has a place beyond the first axis, where no table has a row.
    """
    places = []
    for axis_size in reversed(shape[1:]):
        places.append(positions % axis_size)
        positions = positions // axis_size
    return [positions, *reversed(places)]
