"""Nobody sees the future."""

from keras_attn.attention.chunked import rows
from keras_attn.ops.shapes import size
from keras_attn.patterns.pattern import SHORT, Pattern
from keras_attn.registry import register


@register
class Causal(Pattern):
    """A query meets the keys at its own position and before.

        allowed(i, j) = (j <= i)

    Time O(T S) per head; memory too where the matrix of scores is made, else O(T + S). Positions
    decide, not indices: with more keys than queries (a memory, a cache) the queries are the last
    positions.

    Example:
        >>> from keras_attn.patterns import Causal
        >>> Causal()
        Causal()

    Differs from the paper: none.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2.3.
    """

    causal = True

    def mask_mod(self, i, j):
        return j <= i

    def prefers_blockwise(self, length, num_keys):
        # As many queries as keys, of which it leaves out nearly half of the pairs.
        is_square = num_keys is not None and length == num_keys >= SHORT
        return is_square or super().prefers_blockwise(length, num_keys)

    def attend(self, operands, log_weight=False):
        earlier = size(operands.key, 2) - size(operands.query, 2)
        return rows(operands, self.mask_mod, visible=lambda end: earlier + end, log_weight=log_weight)
