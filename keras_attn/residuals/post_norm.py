"""Normalisation after the sum."""

from keras_attn.registry import register
from keras_attn.residuals.residual import Residual


@register
class PostNorm(Residual):
    """Adds the sublayer's output and normalises the sum.

        before(x) = x,   after(x, y) = LayerNorm(x + y)

    Time and memory O(T D). The statistics are taken in float32.

    Args:
        epsilon: float. Added to the variance.

    Example:
        >>> import keras_attn
        >>> residual = keras_attn.residuals.PostNorm(epsilon=1e-12)

    Differs from the paper: none.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.1.
    """

    def call(self, x, y):
        return self.norm(x + y)
