"""Positions as rotations of queries and keys."""

import numbers

import keras
from keras import ops

from keras_attn.ops.checks import (
    check_choice,
    check_positive,
    check_sizes,
    check_that,
)
from keras_attn.ops.shapes import known_shape
from keras_attn.ops.sinusoids import waves
from keras_attn.positions.position import Position
from keras_attn.positions.rotary_scaling import RotaryScaling, base_frequencies
from keras_attn.registry import register, revive


@register
class Rotary(Position):
    """Turn each pair of components by an angle that grows with the position.

        (x_2i, x_2i+1)  ->  (x_2i cos a - x_2i+1 sin a, x_2i sin a + x_2i+1 cos a),
        a = p / w^(2i/R)

    The dot product of a query and a key that have been turned so depends on their distance alone:
    moving all positions by the same number changes nothing. No weights, no maximum length, and
    vectors keep their lengths, except for the amplitude of a `scaling`. Angles and products are
    float32 under any dtype policy; the result has the dtype of `x`. Time and memory O(T H) per
    head.

    `MultiHeadAttention(..., position="rotary")` turns queries and keys, not values, before scores
    and patterns. A cache keeps turned keys: a step of decoding turns one key, and a kept key has
    its first position, whatever `key_positions` later calls give.

    Use it for language models that decode with a cache and need relative positions without weights.

    Args:
        max_wavelength: float. The base w.
        layout: "interleaved" if neighbours are pairs, as in the paper, or "half" if a component of
            the first half and one of the second are, as in Llama's weights.
        fraction: float. Share of the components that turn, the first R of H; the others stay.
        scaling: a `RotaryScaling` for texts longer than those of training, or None.
        max_length: int. Most positions of a text: a call with more, or a text that would become
            longer by generation, is refused; None for no limit.

    Call arguments and returns:
        As `Position`, for x (B, T, H), or heads (B, N, T, H).

    Raises:
        ValueError: if `max_wavelength` is not above 0, `layout` is unknown, `fraction` is not in
            (0, 1], `scaling` is no `RotaryScaling`, the number R is odd, or `x` has more than
            `max_length` positions.

    Example:
        >>> import keras, keras_attn
        >>> layer = keras_attn.layers.MultiHeadAttention(2, 8, position="rotary")
        >>> layer(keras.ops.ones((3, 5, 16)), keras.ops.ones((3, 5, 16))).shape
        TensorShape([3, 5, 16])

    Differs from the paper: none with the default layout, fraction and scaling; positions start
        at 0.

    Reference: [Su et al., 2021](https://arxiv.org/abs/2104.09864), section 3.2.2, eq. 15, and
        section 3.4.2, eq. 34.
    """

    acts_on_heads = True

    def __init__(
        self,
        max_wavelength=10000,
        layout="interleaved",
        fraction=1.0,
        scaling=None,
        max_length=None,
        **kwargs,
    ):
        # A key and the cache that it goes into have the same dtype, whatever this layer's own is.
        super().__init__(autocast=False, **kwargs)
        check_positive(max_wavelength=max_wavelength)
        check_choice(("interleaved", "half"), layout=layout)
        is_share = isinstance(fraction, numbers.Real) and 0 < fraction <= 1
        check_that(is_share, "in (0, 1]", fraction=fraction)
        scaling = revive(scaling)
        is_scaling = scaling is None or isinstance(scaling, RotaryScaling)
        check_that(is_scaling, "a `RotaryScaling`, such as `YaRN(4, length=2048)`", scaling=scaling)
        if max_length is not None:
            check_sizes(max_length=max_length)
        self.max_length = max_length
        self.max_wavelength = max_wavelength
        self.layout = layout
        self.fraction = float(fraction)
        self.scaling = scaling

    def build(self, x_shape, positions_shape=None):
        turned = self._turned(x_shape[-1])
        if turned != int(turned) or turned % 2:
            share = "" if self.fraction == 1 else f" and fraction={self.fraction}"
            raise ValueError(
                "`x` must have an even number of components that turn, to be cut into pairs. "
                f"Received: x of shape {tuple(x_shape)}{share}."
            )

    def _turned(self, size):
        """Return the number R of components that turn."""
        turned = size * self.fraction
        return round(turned) if abs(turned - round(turned)) < 1e-6 else turned

    def call(self, x, positions=None):
        positions = self._positions_of(x, positions)
        if self.max_length is not None:
            fits = x.shape[-2] is None or x.shape[-2] <= self.max_length
            check_that(fits, f"at most {self.max_length} positions long", x=x.shape)
        amplitude = 1.0 if self.scaling is None else self.scaling.amplitude
        return self._turn(x, positions, amplitude)

    def move(self, x, distances):
        return self._turn(x, distances, amplitude=1.0)  # turned heads have the amplitude already

    def _turn(self, x, positions, amplitude):
        size = x.shape[-1]
        turned = self._turned(size)
        dtype = keras.backend.result_type(x.dtype, "float32")
        table = self._waves(positions, turned, amplitude, x.dtype)
        sin, cos = (self._by_head(w, x, dtype) for w in table)
        whole, x = x, ops.cast(x if turned == size else x[..., :turned], dtype)
        first, second = self._pairs(x)
        parts = first * cos - second * sin, first * sin + second * cos
        x = self._join(parts, known_shape(x))
        if turned < size:
            x = ops.concatenate([x, ops.cast(whole[..., turned:], dtype)], axis=-1)
        return ops.cast(x, whole.dtype)

    def _waves(self, positions, size, amplitude, dtype):
        """Return sines and cosines (..., T, R / 2)."""
        if self.scaling is None:
            frequencies = base_frequencies(size, self.max_wavelength)
        else:
            frequencies = self.scaling.frequencies(size, self.max_wavelength)
        pair = waves(positions, frequencies, dtype)
        return pair if amplitude == 1 else tuple(amplitude * w for w in pair)

    def _by_head(self, x, like, dtype):
        x = ops.expand_dims(x, 1) if len(x.shape) == 3 and len(like.shape) == 4 else x
        return ops.cast(x, dtype)

    def _pairs(self, x):
        """Return the first and the second component of each pair."""
        if self.layout == "half":
            return ops.split(x, 2, axis=-1)
        shape = known_shape(x)
        return ops.unstack(ops.reshape(x, (*shape[:-1], x.shape[-1] // 2, 2)), 2, axis=-1)

    def _join(self, parts, shape):
        if self.layout == "half":
            return ops.concatenate(parts, axis=-1)
        return ops.reshape(ops.stack(parts, axis=-1), shape)
