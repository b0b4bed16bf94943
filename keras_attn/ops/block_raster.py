"""Images read block after block."""

import numbers

import numpy as np


def block_raster_order(image_shape, query_shape):
    """The pixels of an image block after block: the order that `BlockLocal2D` reads.

        rank -> row * width + column,   sorted by block row, block column, row, column

    Blocks at the right and lower edge are as small as what is left of the image.

    Args:
        image_shape, query_shape: (height, width) of the image and of a block.

    Returns:
        int32 array (height * width,): the place in raster order of each rank. `x[:, order]` puts
        pixels in raster order in this one, and `x[:, np.argsort(order)]` puts them back.

    Raises:
        ValueError: if a shape is not of two integers of at least 1.

    Example:
        >>> from keras_attn.patterns import block_raster_order
        >>> block_raster_order((2, 4), (2, 2))
        array([0, 1, 4, 5, 2, 3, 6, 7], dtype=int32)

    Reference: [Parmar et al., 2018](https://arxiv.org/abs/1802.05751), section 3.3, 2D local
        attention.
    """
    height, width = integer_pair(1, image_shape=image_shape)
    block_height, block_width = integer_pair(1, query_shape=query_shape)
    row, column = np.divmod(np.arange(height * width), width)
    order = np.lexsort((column, row, column // block_width, row // block_height))
    return order.astype("int32")


def integer_pair(least, **argument):
    """The value of an argument as a tuple of two integers."""
    ((name, value),) = argument.items()
    value = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(value) != 2 or not all(isinstance(n, numbers.Integral) and n >= least for n in value):
        raise ValueError(
            f"`{name}` must be two integers of at least {least}. "
            f"Received: {name}={argument[name]!r}."
        )
    return tuple(int(n) for n in value)
