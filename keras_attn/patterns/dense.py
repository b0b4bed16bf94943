"""Full attention."""

from keras import ops

from keras_attn.attention.chunked import attend_chunked
from keras_attn.attention.reach import attend_documents
from keras_attn.patterns.pattern import Pattern
from keras_attn.registry import register


@register
class Dense(Pattern):
    """Every query attends to every key.

        allowed(i, j) = True

    Time O(T S) per head; memory too where the matrix of scores is made, else O(T + S).

    Use it for encoders and cross-attention over up to a few thousand positions.

    Example:
        >>> import keras_attn
        >>> keras_attn.layers.MultiHeadAttention(8, 64, pattern="dense").pattern
        Dense()

    Differs from the paper: none.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2.3.
    """

    simple_rule = "full"
    supports_segments = True

    def mask_mod(self, i, j):
        return ops.ones_like(i - j, dtype="bool")

    def attend(self, inputs, log_weight=False):
        def whole():
            return attend_chunked(inputs, log_weight=log_weight)

        if not inputs.query_segments:
            return whole()
        return attend_documents(inputs, None, False, whole, log_weight)
