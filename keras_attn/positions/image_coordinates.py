"""Row, column and channel of a pixel."""

import math

import keras
from keras import ops

from keras_attn.backend.operations import take_rows
from keras_attn.initializers import redraw
from keras_attn.ops.checks import check_choice, check_sizes
from keras_attn.ops.images import block_raster_order, grid_coordinates, grid_positions, integers
from keras_attn.ops.sinusoids import sinusoids
from keras_attn.positions.position import Position
from keras_attn.registry import register


@register
class ImageCoordinates(Position):
    """Add the row, column and channel of each pixel of an image.

        learned:       x_p + R[row] + C[column] + K[channel]
        sinusoidal:    x_p + [PE(row), PE(column * channels + channel)], each of D / 2

    Position p counts numbers row by row, each pixel's channels beside each other:
    p = (row * width + column) * channels + channel. A sequence in another order, as of
    `keras_attn.patterns.block_raster_order`, has its `positions`, or a `query_shape`: then
    positions are ranks in that order. Tables take (height + width + channels) D weights, sinusoids
    none; the latter are at least float32 under any dtype policy. Time and memory O(T D).

    Use it for images as sequences of pixels or of their channels' values.

    Args:
        height, width, channels: ints. Of the images.
        encoding: "learned" (the Sparse Transformer's) or "sinusoidal" (the Image Transformer's; its
            learned ones are `Axial((height, width * channels), (D / 2, D / 2))`).
        embeddings_initializer: of the tables; by default normal with a standard deviation of
            0.01 / sqrt(3), as the authors'.
        query_shape: (height, width) of the blocks that follow each other in the sequence, as those
            of a `BlockLocal2D`, the width counting channels; None for raster order.

    Call arguments and returns:
        As `Position`, with positions below height * width * channels.

    Raises:
        ValueError: if a size is below 1, `encoding` is unknown, or `x` is longer than the image.

    Example:
        >>> from keras import ops
        >>> from keras_attn.patterns import block_raster_order
        >>> from keras_attn.positions import ImageCoordinates
        >>> layer = ImageCoordinates(4, 6, 1)
        >>> pixels = ops.zeros((1, 24, 8))
        >>> layer(pixels, block_raster_order((4, 6), (2, 3))).shape[1:]
        TensorShape([24, 8])

    Differs from the paper: the tables start with a standard deviation of 0.01 / sqrt(3), as in
        the authors' code; the paper has 0.125 / sqrt(D).

    Reference: [Child et al., 2019](https://arxiv.org/abs/1904.10509), section 5.3; the initial
        values: https://github.com/openai/distribution_augmentation; sinusoidal:
        [Parmar et al., 2018](https://arxiv.org/abs/1802.05751), section 3.1.
    """

    weight_axes = {"rows": (), "columns": (), "channels": ()}

    def __init__(
        self,
        height,
        width,
        channels,
        encoding="learned",
        embeddings_initializer=None,
        query_shape=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_sizes(height=height, width=width, channels=channels)
        check_choice(("learned", "sinusoidal"), encoding=encoding)
        self.height = height
        self.width = width
        self.channels = channels
        self.encoding = encoding
        if embeddings_initializer is None:
            embeddings_initializer = keras.initializers.RandomNormal(stddev=0.01 / math.sqrt(3))
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.query_shape = query_shape
        if query_shape is not None:
            self.query_shape = integers(2, 1, query_shape=query_shape)

    @property
    def max_length(self):
        return math.prod(self._shape())

    def build(self, x_shape, positions_shape=None):
        if self.encoding == "learned":
            self.tables = [
                self.add_weight((size, x_shape[-1]), redraw(self.embeddings_initializer), name=name)
                for name, size in zip(("rows", "columns", "channels"), self._shape(), strict=True)
            ]

    def call(self, x, positions=None):
        positions = grid_positions(x, positions, self._shape())
        if self.query_shape is not None:
            order = block_raster_order((self.height, self.width * self.channels), self.query_shape)
            positions = take_rows(ops.convert_to_tensor(order), positions)
        if self.encoding == "learned":
            places = grid_coordinates(positions, self._shape())
            parts = zip(self.tables, places, strict=True)
            vectors = sum(take_rows(table, place) for table, place in parts)
        else:
            places = grid_coordinates(positions, (self.height, self.width * self.channels))
            half = x.shape[-1] // 2
            widths = half, x.shape[-1] - half
            parts = [
                sinusoids(p, width, dtype=self.compute_dtype) for p, width in zip(places, widths)
            ]
            vectors = ops.concatenate(parts, axis=-1)
        return self._add(x, vectors)

    def _shape(self):
        return self.height, self.width, self.channels
