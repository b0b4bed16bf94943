"""Dot-product scores."""

import math

from keras import ops

from keras_attn.attention.softmax import query_keys
from keras_attn.registry import register
from keras_attn.scores.score import Score


@register
class DotProduct(Score):
    """Score of a query and a key by their dot product.

        logit(q, k) = q . k / sqrt(H)        (without the root if `scaled=False`)

    With unit-variance components the dot product has variance H; the root brings it back to 1, so
    that the softmax keeps a gradient at large H. Time O(T S H), memory O(T S) per head. From
    float16 the product is float32, which does not overflow.

    Use it for every model without a reason for another score; it is the fastest.

    Args:
        scaled: bool. True to divide by the square root of the head size.

    Example:
        >>> import keras_attn
        >>> keras_attn.layers.MultiHeadAttention(8, 64, score="scaled_dot").score
        DotProduct()

    Differs from the paper: none.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2.1, eq. 1;
        unscaled: [Luong et al., 2015](https://arxiv.org/abs/1508.04025), section 3.1.
    """

    def __init__(self, scaled=True):
        self.scaled = bool(scaled)

    def __call__(self, query, key, query_positions=None, key_positions=None):
        if self.scaled:
            query = query * ops.cast(1 / math.sqrt(query.shape[-1]), query.dtype)
        return query_keys(query, key)

    def kernel_scale(self, head_dim):
        if type(self) is not DotProduct:  # a subclass may compute anything
            return None
        return 1 / math.sqrt(head_dim) if self.scaled else 1.0
