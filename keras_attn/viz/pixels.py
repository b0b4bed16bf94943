"""Pictures of the pixels that a pixel attends to."""

import math

import numpy as np

from keras_attn import patterns
from keras_attn.ops.checks import check_that
from keras_attn.ops.images import integers
from keras_attn.patterns.combined import Combined

QUERY = "#e4572e"


def check_image_shape(image_shape, length):
    """Return `image_shape` as two ints, whose product is `length` if that is given."""
    image_shape = integers(2, 1, image_shape=image_shape)
    size = math.prod(image_shape)
    check_that(
        length in (None, size), f"{size}, the pixels of {image_shape}, or None", length=length
    )
    return image_shape


def check_pixels(pixels, image_shape):
    """Return (row, column) of each pixel to draw: by default at the top, middle, side and end."""
    height, width = image_shape
    if pixels is None:
        pixels = [(0, width // 2), (height // 2, width // 2), (height // 2, width - 1)]
        return list(dict.fromkeys([*pixels, (height - 1, width // 3)]))
    wanted = f"a list of (row, column) inside the image {image_shape}"
    is_list = isinstance(pixels, (tuple, list)) and len(pixels) > 0
    are_pairs = is_list and all(isinstance(pixel, (tuple, list)) for pixel in pixels)
    check_that(are_pairs, wanted, pixels=pixels)
    pixels = [integers(2, 0, pixels=pixel) for pixel in pixels]
    are_inside = all(row < height and column < width for row, column in pixels)
    check_that(are_inside, wanted, pixels=pixels)
    return pixels


def raster_order(pattern, image_shape):
    """Return the raster index of each position: `BlockLocal2D` reads an image block by block."""
    orders = {block.query_shape for block in _blocks(pattern, image_shape)}
    if not orders:
        return np.arange(math.prod(image_shape))
    check_that(len(orders) == 1, "with blocks of one `query_shape`", pattern=pattern)
    return patterns.block_raster_order(image_shape, orders.pop())


def draw_pixel(axes, weights, pixel, order, image_shape):
    """Draw the factors (T, T) of the pairs of one query, `pixel`, as an image of its keys."""
    rank = int(np.flatnonzero(order == np.ravel_multi_index(pixel, image_shape))[0])
    image = np.zeros(len(order))
    image[order] = weights[rank]
    axes.imshow(image.reshape(image_shape), cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    row, column = pixel
    # A frame, not a filled cell: the shade says whether the pixel attends to itself.
    axes.add_patch(_frame(row, column))
    axes.set(xlabel="column", ylabel="row")


def _frame(row, column):
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=QUERY, linewidth=2)


def _blocks(pattern, image_shape):
    if isinstance(pattern, patterns.BlockLocal2D):
        check_that(
            image_shape == pattern.image_shape,
            f"{pattern.image_shape}, that of the pattern",
            image_shape=image_shape,
        )
        return [pattern]
    parts = ()
    if isinstance(pattern, Combined):
        parts = pattern.first, pattern.second
    elif isinstance(pattern, patterns.PerHead):
        parts = pattern.patterns
    return [block for part in parts for block in _blocks(part, image_shape)]
