"""Sinusoidal positions."""

from keras import ops

from keras_attn.ops.checks import (
    check_choice,
    check_positions,
    check_positive,
    check_shape,
    check_sizes,
)
from keras_attn.ops.shapes import size
from keras_attn.ops.sinusoids import LAYOUTS, sinusoids
from keras_attn.positions.position import Position
from keras_attn.registry import register


@register
class Sinusoidal(Position):
    """Add sines and cosines of the position, of geometrically growing wavelength.

        PE(p, 2i) = sin(p / w^(2i/D)),   PE(p, 2i+1) = cos(p / w^(2i/D))

    No weights, no maximum length; PE(p + k) is a rotation of PE(p) that depends on k alone. The
    table is float32 under any dtype policy and cast last, so distant positions stay distinct in
    bfloat16. Time and memory O(T D).

    Use it for sequences of any length, without learned positions.

    Args:
        layout: `"interleaved"` (the paper's), `"concat"` (sines first, then cosines) or
            `"tensor2tensor"` (as concat, with exponent i / (D/2 - 1)).
        max_wavelength: float. The base w.
        first_position: int. Added to all positions.

    Call arguments and returns:
        As `Position`.

    Raises:
        ValueError: if `layout` is unknown, `max_wavelength` is not above 0, or `first_position` is
            below 0.

    Example:
        >>> from keras import ops
        >>> from keras_attn.positions import Sinusoidal
        >>> Sinusoidal()(ops.zeros((1, 3, 4))).shape[1:]
        TensorShape([3, 4])

    Differs from the paper: none with the default layout; positions start at 0.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.5.
    """

    def __init__(self, layout="interleaved", max_wavelength=10000, first_position=0, **kwargs):
        super().__init__(**kwargs)
        check_choice(LAYOUTS, layout=layout)
        check_positive(max_wavelength=max_wavelength)
        self.layout = layout
        check_sizes(0, first_position=first_position)
        self.max_wavelength = max_wavelength
        self.first_position = first_position

    def call(self, x, positions=None):
        check_shape(x, "x", (None, None, None))
        if positions is None:
            positions = ops.arange(size(x, 1), dtype="int32")
        positions = check_positions(positions, "positions", *x.shape[:2])
        positions = positions + self.first_position
        dtype = self.compute_dtype
        table = sinusoids(positions, x.shape[-1], self.layout, self.max_wavelength, dtype)
        return self._add(x, table)
