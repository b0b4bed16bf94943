"""Dynamic tanh, which replaces a norm."""

import keras
from keras import ops

from keras_attn.norms.norm import Norm
from keras_attn.ops.checks import check_numbers
from keras_attn.registry import register


@register
class DyT(Norm):
    """Squash each number by a tanh of learned slope, then scale and shift it.

        DyT(x) = g tanh(a x) + b

    a is one number, g and b (D,) have one for each channel; all are learned, and computed in
    float32. Nothing is averaged: an output depends on its own input alone. Time and memory O(T D).

    Use it for comparing a norm with a layer that computes no statistics.

    Args:
        alpha: float. Initial value of a.

    Call arguments and returns:
        As `Norm`.

    Raises:
        ValueError: if `alpha` is no number.

    Example:
        >>> import keras_attn
        >>> residual = keras_attn.residuals.PreNorm(norm=keras_attn.norms.DyT(0.8))

    Differs from the paper: none.

    Reference: [Zhu et al., 2025](https://arxiv.org/abs/2503.10622), section 4, eq. 3.
    """

    weight_axes = {"slope": (), "gamma": (), "beta": ()}

    def __init__(self, alpha=0.5, **kwargs):
        super().__init__(**kwargs)
        check_numbers(alpha=alpha)
        self.alpha = float(alpha)

    def build(self, x_shape):
        width, start = (x_shape[-1],), keras.initializers.Constant(self.alpha)
        self.slope = self.add_weight((), start, name="slope", autocast=False)
        self.gamma = self.add_weight(width, "ones", name="gamma", autocast=False)
        self.beta = self.add_weight(width, "zeros", name="beta", autocast=False)

    def call(self, x):
        x = ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
        return ops.cast(self.gamma * ops.tanh(self.slope * x) + self.beta, self.compute_dtype)
