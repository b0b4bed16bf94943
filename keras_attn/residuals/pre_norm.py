"""Normalisation before the sublayer."""

from keras_attn.registry import register
from keras_attn.residuals.residual import Residual


@register
class PreNorm(Residual):
    """Normalises what the sublayer reads and leaves the sum alone.

        before(x) = LayerNorm(x),   after(x, y) = x + y

    The identity path reaches from the last block to the first, so deep stacks train without a
    warm-up; a stack of such blocks ends with one more LayerNorm, which the stack adds. Time and
    memory O(T D).

    Args:
        epsilon: float. Added to the variance.

    Example:
        >>> import keras_attn
        >>> residual = keras_attn.residuals.PreNorm(epsilon=1e-5)

    Differs from the paper: none.

    Reference: [Wang et al., 2019](https://arxiv.org/abs/1906.01787), section 2.1, eq. 3;
        [Xiong et al., 2020](https://arxiv.org/abs/2002.04745), section 3.
    """

    needs_closing_norm = True

    def before(self, x):
        return self.norm(x)

    def call(self, x, y):
        return x + y
