"""Full attention."""

import functools

from keras import ops

from keras_attn.attention.plans import AllKeys
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

    def mask_mod(self, i, j):
        return ops.ones_like(i - j, dtype="bool")

    @functools.cached_property
    def plan(self):
        return AllKeys(self.mask_mod, causal=False)
