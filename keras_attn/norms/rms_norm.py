"""Normalisation by the root of the mean square."""

import keras
from keras import ops

from keras_attn.norms.norm import Norm
from keras_attn.ops.checks import check_numbers
from keras_attn.registry import register


@register
class RMSNorm(Norm):
    """Divide each position by the root of its mean square, then scale it.

        RMSNorm(x) = (offset + g) x / sqrt(mean(x^2) + epsilon)

    The mean square is that of a position's D numbers; it and the product with g (D,) are float32.
    There is no mean to subtract and no bias to add. The paper measures the quality of `LayerNorm`
    in 7 to 64 % less time. Time and memory O(T D).

    Use it for language models as they are built since Llama.

    Args:
        epsilon: float. Added to the mean square.
        offset: float. g starts at 1 - offset. With 1, as in Gemma, weight decay pulls the scale
            to 1 rather than to 0.

    Call arguments and returns:
        As `Norm`.

    Raises:
        ValueError: if `epsilon` is below 0, or `offset` is no number.

    Example:
        >>> import keras_attn
        >>> residual = keras_attn.residuals.PreNorm(norm="rms_norm")

    Differs from the paper: `epsilon` and `offset`, which the paper does not have. Llama multiplies
        by g after the cast to the compute dtype.

    Reference: [Zhang and Sennrich, 2019](https://arxiv.org/abs/1910.07467), section 4, eq. 4.
    """

    weight_axes = {"scale": ()}

    def __init__(self, epsilon=1e-6, offset=0.0, **kwargs):
        super().__init__(**kwargs)
        check_numbers(0, epsilon=epsilon)
        check_numbers(offset=offset)
        self.epsilon = epsilon
        self.offset = float(offset)

    def build(self, x_shape):
        start = keras.initializers.Constant(1 - self.offset)
        self.scale = self.add_weight((x_shape[-1],), start, name="scale", autocast=False)

    def call(self, x):
        scale = self.scale + self.offset if self.offset else self.scale
        x = ops.rms_normalization(x, scale, axis=-1, epsilon=self.epsilon)
        return ops.cast(x, self.compute_dtype)
