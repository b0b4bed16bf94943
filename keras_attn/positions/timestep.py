"""Positions in the sequence and in depth."""

from keras import ops

from keras_attn.ops.shapes import size
from keras_attn.ops.sinusoids import sinusoids
from keras_attn.positions.sinusoidal import Sinusoidal
from keras_attn.registry import register


@register
class Timestep(Sinusoidal):
    """Add sines and cosines of the position, and of the step for which a block is repeated.

        P^t(i, 2j) = sin(i / w^(2j/D)) + sin(t / w^(2j/D)),   P^t(i, 2j+1) = cos(...) + cos(...)

    For a block with shared weights, which has no other way to know how often it has run. Positions
    and steps count from 0, and from 1 in the formula: i = position + 1, t = step + 1. The table is
    float32 under any dtype policy and cast last. Time and memory O(T D).

    A `Recurrent` or an `ACT` adds it before each step, so nothing else should add positions to
    their inputs.

    Use it for `Recurrent` and `ACT`, whose shared block must know its step.

    Args:
        layout, max_wavelength, first_position: as those of `Sinusoidal`.

    Call arguments and returns:
        As `Position`.
        step: int, or int32 scalar. Number of steps taken before; by default 0.

    Raises:
        ValueError: as those of `Sinusoidal`.

    Example:
        >>> from keras import ops
        >>> from keras_attn.positions import Timestep
        >>> Timestep()(ops.zeros((1, 3, 4)), step=2).shape[1:]
        TensorShape([3, 4])

    Differs from the paper: none with the default layout.

    Reference: [Dehghani et al., 2019](https://arxiv.org/abs/1807.03819), section 2.1, eq. 6 and 7.
    """

    counts_steps = True

    def call(self, x, positions=None, step=0):
        if positions is None:
            positions = ops.arange(size(x, 1), dtype="int32")
        x = super().call(x, ops.convert_to_tensor(positions) + 1)
        step = ops.convert_to_tensor(step, "int32") + 1
        dtype = self.compute_dtype
        table = sinusoids(step, x.shape[-1], self.layout, self.max_wavelength, dtype)
        return self._add(x, table)
