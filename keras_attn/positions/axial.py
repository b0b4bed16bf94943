"""Learned positions, factored along the axes of a grid."""

import math

import keras
from keras import ops

from keras_attn.backend.operations import take_rows
from keras_attn.initializers import redraw
from keras_attn.ops.checks import check_sizes
from keras_attn.ops.images import grid_coordinates, grid_positions
from keras_attn.positions.position import Position
from keras_attn.registry import register


@register
class Axial(Position):
    """Add a learned vector to each position, joined from one for its row and one for its column.

        x_p + [A_1[p // n_2], A_2[p mod n_2]],   A_k (n_k, d_k),   d_1 + d_2 = D

    The sequence fills a grid of n_1 rows of n_2, row after row, or one of any number of axes, the
    last one running fastest. n_1 d_1 + n_2 d_2 weights replace the n_1 n_2 D of a whole table: 0.3
    million, not 50, for 65536 positions in a grid of 128 by 512 with vectors of 256 and 512. Time
    and memory O(T D). With `shape=(height, width * channels)` and halves of D, these are the
    learned coordinates of the Image Transformer.

    Use it for learned positions in very long sequences, with far fewer weights than a full table.

    Args:
        shape: tuple of ints. The grid, as (n_1, n_2).
        dims: tuple of ints, one for each axis, whose sum is D.
        embeddings_initializer: of the tables; by default normal with a standard deviation of 1, as
            the authors'.

    Call arguments and returns:
        As `Position`, with positions below the product of `shape`.

    Raises:
        ValueError: if `shape` or `dims` are not ints of at least 1, one for each axis, `dims` do
            not sum to D, or `x` is longer than the grid.

    Example:
        >>> from keras import ops
        >>> from keras_attn.positions import Axial
        >>> layer = Axial(shape=(3, 5), dims=(2, 6))
        >>> layer(ops.zeros((1, 7, 8))).shape[1:], layer.count_params()
        (TensorShape([7, 8]), 36)

    Differs from the paper: not in its text; as in the authors' code, but that a sequence may be
        shorter than the grid.

    Reference: the code of [Kitaev et al., 2020](https://arxiv.org/abs/2001.04451),
        [Trax](https://github.com/google/trax), `AxialPositionalEncoding`.
    """

    weight_axes = {"table": ()}

    def __init__(self, shape, dims, embeddings_initializer=None, **kwargs):
        super().__init__(**kwargs)
        self.shape, self.dims = _integers(shape=shape), _integers(dims=dims)
        if len(self.shape) != len(self.dims):
            raise ValueError(
                "`shape` and `dims` must have one number for each axis. "
                f"Received: shape={self.shape}, dims={self.dims}."
            )
        if embeddings_initializer is None:
            embeddings_initializer = keras.initializers.RandomNormal(stddev=1.0)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    @property
    def max_length(self):
        return math.prod(self.shape)

    def build(self, x_shape, positions_shape=None):
        if sum(self.dims) != x_shape[-1]:
            raise ValueError(
                "`dims` must sum to the size of the last axis of `x`. "
                f"Received: dims={self.dims}, x of shape {tuple(x_shape)}."
            )
        self.tables = [
            self.add_weight(shape, redraw(self.embeddings_initializer), name=f"table_{number}")
            for number, shape in enumerate(zip(self.shape, self.dims, strict=True), start=1)
        ]

    def call(self, x, positions=None):
        places = grid_coordinates(grid_positions(x, positions, self.shape), self.shape)
        parts = [take_rows(*part) for part in zip(self.tables, places, strict=True)]
        return self._add(x, ops.concatenate(parts, axis=-1))


def _integers(**argument):
    ((name, sizes),) = argument.items()
    if not isinstance(sizes, (tuple, list)) or not sizes:
        raise ValueError(f"`{name}` must be a tuple of integers. Received: {name}={sizes!r}.")
    for number, size in enumerate(sizes):
        check_sizes(**{f"{name}[{number}]": size})
    return tuple(int(size) for size in sizes)
