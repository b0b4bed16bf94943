"""Positions of a grid as rotations of queries and keys."""

import math

from keras import ops

from keras_attn.ops.images import check_fits, grid_coordinates, integers
from keras_attn.positions.position import Position
from keras_attn.positions.rotary import Rotary
from keras_attn.registry import build_once, register


@register
class AxialRotary(Position):
    """Turn half of the components by the row of a position in a grid, the other half by its column.

        x_p -> [Rotary(x_1 .. x_{H/2}, p // n_2), Rotary(x_{H/2+1} .. x_H, p mod n_2)]

    The angles of a row or column a are a w^(-2i / (H/2)), i = 0 .. H/4 - 1, as in `Rotary`.
    The dot product of a query and a key depends on the two distances between their rows and between
    their columns. No weights; all else is as in `Rotary`. Time and memory O(T H) per head.

    Use it for images, whose pixels or patches are in raster order.

    Args:
        shape: (n_1, n_2), rows and columns of the grid.
        max_wavelength: float. The base w.

    Call arguments and returns:
        As `Position`, for x (B, T, H), or heads (B, N, T, H), with positions p below n_1 n_2.

    Raises:
        ValueError: if `shape` is not two integers of at least 1, `max_wavelength` is not above 0,
            the size of `x` is no multiple of 4, or `x` is longer than the grid.

    Example:
        >>> import keras, keras_attn
        >>> position = keras_attn.positions.AxialRotary((3, 5))
        >>> layer = keras_attn.layers.MultiHeadAttention(2, 8, position=position)
        >>> layer(keras.ops.ones((3, 15, 16)), keras.ops.ones((3, 15, 16))).shape
        TensorShape([3, 15, 16])

    Differs from the paper: the first half of the components is of the rows, where the authors' code
        has the columns first.

    Reference: [Heo et al., 2024](https://arxiv.org/abs/2403.13298), section 3.2, "axial".
    """

    acts_on_heads = True

    def __init__(self, shape, max_wavelength=100, **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.shape = integers(2, 1, shape=shape)
        self.max_wavelength = max_wavelength
        self.rotary = Rotary(max_wavelength, dtype=self.dtype_policy)

    @property
    def max_length(self):
        return math.prod(self.shape)

    def build(self, x_shape, positions_shape=None):
        if x_shape[-1] % 4:
            raise ValueError(
                "`x` must have a multiple of 4 components: pairs of rows and pairs of columns. "
                f"Received: x of shape {tuple(x_shape)}."
            )
        build_once(self.rotary, (*x_shape[:-1], x_shape[-1] // 2))

    def call(self, x, positions=None):
        positions = self._positions_of(x, positions)
        if len(positions.shape) == 1:  # rows with positions of their own may hold several grids
            check_fits(x.shape[-2], self.shape)
        coordinates = grid_coordinates(positions, self.shape)
        halves = ops.split(x, 2, axis=-1)
        turned = [self.rotary(*part) for part in zip(halves, coordinates, strict=True)]
        return ops.concatenate(turned, axis=-1)
