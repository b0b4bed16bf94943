"""Nobody sees the future."""

from keras_attn.axis import register
from keras_attn.ops.cutting import size
from keras_attn.ops.rows import rows
from keras_attn.patterns.pattern import SHORT, Pattern


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

    def meets(self, i, j):
        return j <= i

    def plan_pays(self, length, num_keys):
        # As many queries as keys, of which it leaves out nearly half of the pairs.
        is_square = num_keys is not None and length == num_keys >= SHORT
        return is_square or super().plan_pays(length, num_keys)

    def attend(self, operands, log_weight=False):
        earlier = size(operands.key, 2) - size(operands.query, 2)
        return rows(operands, self.meets, visible=lambda end: earlier + end, log_weight=log_weight)
