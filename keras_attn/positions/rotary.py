"""Positions as rotations of queries and keys."""

import keras
from keras import ops

from keras_attn.ops.checks import check_positions, check_shape
from keras_attn.ops.shapes import known_shape
from keras_attn.ops.sinusoids import check_wavelength, sinusoids
from keras_attn.positions.position import Position
from keras_attn.registry import register


@register
class Rotary(Position):
    """Turn each pair of components by an angle that grows with the position.

        (x_2i, x_2i+1)  ->  (x_2i cos a - x_2i+1 sin a, x_2i sin a + x_2i+1 cos a),
        a = p / w^(2i/H)

    The dot product of a query and a key that have been turned so depends on their distance alone:
    moving all positions by the same number changes nothing. No weights, no maximum length, and
    vectors keep their lengths. Angles and products are float32 under any dtype policy; the result
    has the dtype of `x`. Time and memory O(T H) per head.

    `MultiHeadAttention(..., position="rotary")` turns queries and keys, not values, before scores
    and patterns, and keys before a cache keeps them: a step of decoding turns one key, and a kept
    key has its first position, whatever `key_positions` later calls give.

    Use it for language models that decode with a cache and need relative positions without weights.

    Args:
        max_wavelength: float. The base w.

    Call arguments and returns:
        As `Position`, for x (B, T, H), or heads (B, N, T, H).

    Raises:
        ValueError: if `max_wavelength` is not above 0, or the size H is odd.

    Example:
        >>> import keras, keras_attn
        >>> layer = keras_attn.layers.MultiHeadAttention(2, 8, position="rotary")
        >>> layer(keras.ops.ones((3, 5, 16)), keras.ops.ones((3, 5, 16))).shape
        TensorShape([3, 5, 16])

    Differs from the paper: none; positions start at 0.

    Reference: [Su et al., 2021](https://arxiv.org/abs/2104.09864), section 3.2.2, eq. 15, and
        section 3.4.2, eq. 34.
    """

    acts_on_heads = True

    def __init__(self, max_wavelength=10000, **kwargs):
        # A key and the cache that it goes into have the same dtype, whatever this layer's own is.
        super().__init__(autocast=False, **kwargs)
        check_wavelength(max_wavelength)
        self.max_wavelength = max_wavelength

    def build(self, x_shape, positions_shape=None):
        if x_shape[-1] % 2:
            raise ValueError(
                "`x` must have an even size, to be cut into pairs. "
                f"Received: x of shape {tuple(x_shape)}."
            )

    def call(self, x, positions=None):
        check_shape(x, "x", (None,) * 3, (None,) * 4)
        length, size = x.shape[-2:]
        if positions is None:
            positions = ops.arange(ops.shape(x)[-2], dtype="int32")
        positions = check_positions(positions, "positions", x.shape[0], length)
        angles = sinusoids(positions, size, "concat", self.max_wavelength, x.dtype)  # (..., T, H)
        if len(angles.shape) == 3 and len(x.shape) == 4:
            angles = angles[:, None]
        dtype = keras.backend.result_type(x.dtype, "float32")
        sin, cos = ops.split(ops.cast(angles, dtype), 2, axis=-1)
        shape = known_shape(x)
        pairs = ops.reshape(ops.cast(x, dtype), (*shape[:-1], size // 2, 2))
        even, odd = ops.unstack(pairs, 2, axis=-1)
        turned = ops.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
        return ops.cast(ops.reshape(turned, shape), x.dtype)
