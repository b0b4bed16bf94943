"""Grids of pixels: positions, coordinates, block order, and values as digits of a number."""

import math
import numbers

import numpy as np
from keras import ops

from keras_attn.ops.checks import check_integers, check_positions, check_shape, check_that
from keras_attn.ops.ids import narrow
from keras_attn.ops.shapes import size

COUNTS = {2: "two", 3: "three"}


def grid_positions(x, positions, shape):
    """Return int32 positions (T,) or (B, T) of `x` (B, T, D), by default 0 .. T-1."""
    check_shape(x, "x", (None, None, None))
    if positions is not None:
        positions = check_positions(positions, "positions", *x.shape[:2])
        check_integers(positions, "positions")
        return ops.cast(narrow(positions), "int32")
    check_fits(x.shape[1], shape)
    return ops.arange(size(x, 1), dtype="int32")


def check_fits(length, shape):
    """Check that a grid has a position for each of a row of inputs, if their number is known."""
    if length is not None and length > math.prod(shape):
        raise ValueError(
            "`x` is longer than the table of positions. Use shorter rows, or make the table, or "
            "the model, for more positions. "
            f"Received: length {length}, a table of {' x '.join(map(str, shape))}."
        )


def grid_coordinates(positions, shape):
    """Return the coordinate of each position on each axis of a grid, in row-major order.

    A position beyond the grid gets a coordinate beyond the first axis, where no table has a row.
    """
    coordinates = []
    for axis_size in reversed(shape[1:]):
        coordinates.append(positions % axis_size)
        positions = positions // axis_size
    return [positions, *reversed(coordinates)]


def block_raster_order(image_shape, query_shape):
    """Return the pixels of an image block by block: the order that `BlockLocal2D` reads.

        rank -> row * width + column,   sorted by block row, block column, row, column

    Blocks at the right and lower edge may be smaller.

    Args:
        image_shape, query_shape: (height, width) of the image and of a block.

    Returns:
        int32 array (height * width,): the raster index of each rank. `x[:, order]` sorts pixels
        from raster order into block order, and `x[:, np.argsort(order)]` sorts them back.

    Raises:
        ValueError: if a shape is not two integers of at least 1.

    Example:
        >>> from keras_attn.patterns import block_raster_order
        >>> block_raster_order((2, 4), (2, 2))
        array([0, 1, 4, 5, 2, 3, 6, 7], dtype=int32)

    Reference: [Parmar et al., 2018](https://arxiv.org/abs/1802.05751), section 3.3, 2D local
        attention.
    """
    height, width = integers(2, 1, image_shape=image_shape)
    block_height, block_width = integers(2, 1, query_shape=query_shape)
    row, column = np.divmod(np.arange(height * width), width)
    order = np.lexsort((column, row, column // block_width, row // block_height))
    return order.astype("int32")


def integers(count, least, **argument):
    """Return an argument as a tuple of `count` integers of at least `least`."""
    (value,) = argument.values()
    numbers_given = value if isinstance(value, (tuple, list)) else (value,)
    are_integers = all(isinstance(n, numbers.Integral) and n >= least for n in numbers_given)
    wanted = f"{COUNTS[count]} integers of at least {least}"
    check_that(len(numbers_given) == count and are_integers, wanted, **argument)
    return tuple(map(int, numbers_given))


def check_pixels(num_values, channels):
    """Check that the numbers of pixels with so many values a channel, and two more, are int32."""
    if num_values**channels + 2 > 2**31:
        raise ValueError(
            "There must be less than 2^31 different pixels, since ids are int32. "
            f"Received: num_values={num_values}, channels={channels}."
        )


def join_values(values, num_values):
    """Return int32 (...,), the number with digits `values` (..., C) in base `num_values`."""
    joined = 0
    for c in range(values.shape[-1]):
        joined = joined * num_values + ops.cast(values[..., c], "int32")
    return joined


def split_number(number, count, num_values):
    """Return the digits (..., C) of numbers (...,) that `join_values` made."""
    _, *digits = grid_coordinates(number, (None, *[num_values] * count))
    return ops.stack(digits, axis=-1)
