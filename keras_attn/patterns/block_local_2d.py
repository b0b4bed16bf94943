"""Blocks of an image that look up and to the sides."""

import functools
import math

import numpy as np
from keras import ops

from keras_attn.attention.block_sparse import BlockSparse
from keras_attn.ops.images import block_raster_order, integers
from keras_attn.patterns.pattern import KeptKeys, Pattern
from keras_attn.registry import register


@register
class BlockLocal2D(Pattern):
    """A query attends to the pixels before it in its own block of an image and in a rim around it.

        allowed(i, j) = j <= i  and  pixel(j) in the block of pixel(i), extended by `flange[0]` rows
                        above and `flange[1]` columns to each side

    Positions are ranks in `block_raster_order`, in which the sequence is written. "Before" is
    before in this order: a query attends to pixels to its right in rows above, and pixels of the
    block to its left in rows below. A sequence may end before the image does. Time O(T K) and
    memory O(T K / (h w)) per head, for blocks of h by w pixels and K at most
    (h + flange[0]) (w + 2 flange[1]).

    Use it for images generated pixel by pixel, where rows above matter as much as the row itself.

    Args:
        image_shape: (height, width) of the image; with a position for each channel, the width
            counts them: (32, 96) for 32 by 32 pixels in three colours.
        query_shape: (height, width) of a block; smaller at the right and lower edge, if it does
            not divide the image.
        flange: (rows above, columns to each side).

    Raises:
        ValueError: if an argument is not of two integers, of at least 1 (`flange`: 0), or if the
            sequence is longer than the image.

    Example:
        >>> from keras_attn import layers, patterns
        >>> pattern = patterns.BlockLocal2D((32, 96), (8, 32), flange=(8, 16))
        >>> layer = layers.MultiHeadAttention(4, 128, pattern=pattern)

    Differs from the paper: none; blocks at the edge of an image that they do not divide are
        smaller, where the authors' code pads the image.

    Reference: [Parmar et al., 2018](https://arxiv.org/abs/1802.05751), section 3.3, 2D local
        attention.
    """

    causal = True

    def __init__(self, image_shape, query_shape, flange):
        self.image_shape = integers(2, 1, image_shape=image_shape)
        self.query_shape = integers(2, 1, query_shape=query_shape)
        self.flange = integers(2, 0, flange=flange)

    def mask_mod(self, i, j):
        (height, width), (above, aside) = self.query_shape, self.flange
        (query_row, query_column), (row, column) = self._pixel(i), self._pixel(j)
        top, left = query_row // height * height, query_column // width * width
        conditions = (
            j <= i,
            j >= 0,
            i < math.prod(self.image_shape),
            row >= top - above,
            row < top + height,
            column >= left - aside,
            column < left + width + aside,
        )
        return functools.reduce(ops.logical_and, conditions)

    @functools.cached_property
    def plan(self):
        starts, keys = self._tables()
        # The lists hold no pixel outside the rectangle.
        return BlockSparse(self.mask_mod, starts, keys, lambda i, j: j <= i)

    @property
    def kept_keys(self):
        return KeptKeys(positions=self._keys_of_block)

    def check(self, score=None, length=None):
        if length is not None and length > math.prod(self.image_shape):
            raise ValueError(
                "`image_shape` must have a pixel for each position. Received: "
                f"image_shape={self.image_shape}, {length} positions."
            )

    def _keys_of_block(self, position, num_keys):
        starts, keys = self._tables()
        block = ops.sum(ops.cast(ops.convert_to_tensor(starts[1:]) <= position, "int32"))
        return ops.take(ops.convert_to_tensor(keys), ops.minimum(block, len(keys) - 1), axis=0)

    def _pixel(self, rank):
        """Return the row and column of a rank."""
        (image_height, image_width), (height, width) = self.image_shape, self.query_shape
        top = rank // (height * image_width) * height
        rank = rank - top * image_width
        # Blocks at the edge are smaller; beyond it there is no pixel, and 1 avoids a division by 0.
        height = ops.clip(image_height - top, 1, height)
        left = rank // (height * width) * width
        rank = rank - left * height
        width = ops.clip(image_width - left, 1, width)
        return top + rank // width, left + rank % width

    def _tables(self):
        return _tables(self.image_shape, self.query_shape, self.flange)


@functools.lru_cache(maxsize=64)
def _tables(image_shape, query_shape, flange):
    """Return the first ranks of blocks, (blocks + 1,) with the end, and their keys (blocks, K)."""
    order = block_raster_order(image_shape, query_shape)
    ranks = np.argsort(order).astype("int32").reshape(image_shape)
    starts, lists = [0], []
    for top in range(0, image_shape[0], query_shape[0]):
        for left in range(0, image_shape[1], query_shape[1]):
            below, right = top + query_shape[0], left + query_shape[1]
            starts.append(starts[-1] + ranks[top:below, left:right].size)
            near = slice(max(left - flange[1], 0), right + flange[1])
            keys = ranks[max(top - flange[0], 0) : below, near]
            lists.append(np.sort(keys[keys < starts[-1]]))
    table = np.full((len(lists), max(map(len, lists))), -1, "int32")
    for row, keys in zip(table, lists, strict=True):
        row[: len(keys)] = keys
    return np.array(starts, "int32"), table
