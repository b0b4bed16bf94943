"""Layer normalisation."""

import keras
from keras import ops

from keras_attn.backend.operations import normalize
from keras_attn.norms.norm import Norm
from keras_attn.ops.checks import check_numbers
from keras_attn.registry import register


@register
class LayerNorm(Norm):
    """Normalise each position to mean 0 and variance 1, then scale and shift it.

        LayerNorm(x) = g (x - mean(x)) / sqrt(var(x) + epsilon) + b

    Mean and variance are those of a position's D numbers, in float32; g and b (D,) are learned.
    Time and memory O(T D).

    Use it for the models of the papers up to 2020.

    Args:
        epsilon: float. Added to the variance.
        use_bias: bool. If False, there is no b.

    Call arguments and returns:
        As `Norm`.

    Raises:
        ValueError: if `epsilon` is below 0.

    Example:
        >>> import keras_attn
        >>> residual = keras_attn.residuals.PreNorm(norm=keras_attn.norms.LayerNorm(1e-5))

    Differs from the paper: `epsilon`, which the paper does not have.

    Reference: [Ba et al., 2016](https://arxiv.org/abs/1607.06450), section 3.1, eq. 3 and 4.
    """

    weight_axes = {"gamma": (), "beta": ()}

    def __init__(self, epsilon=1e-6, use_bias=True, **kwargs):
        super().__init__(**kwargs)
        check_numbers(0, epsilon=epsilon)
        self.epsilon = epsilon
        self.use_bias = bool(use_bias)

    def build(self, x_shape):
        width = (x_shape[-1],)
        self.gamma = self.add_weight(width, "ones", name="gamma", autocast=False)
        self.beta = None
        if self.use_bias:
            self.beta = self.add_weight(width, "zeros", name="beta", autocast=False)

    def call(self, x, training=None):
        dtype = keras.backend.result_type(x.dtype, "float32")
        beta = None if self.beta is None else ops.cast(self.beta, dtype)
        # Exports and decoding need no gradient, whose definition adds operations (Identity).
        compute = normalize if training else normalize.portable
        x = compute(ops.cast(x, dtype), self.epsilon, ops.cast(self.gamma, dtype), beta)
        return ops.cast(x, self.compute_dtype)
