"""Nobody sees the future."""

from keras_attn.axis import register
from keras_attn.patterns.pattern import Pattern


@register
class Causal(Pattern):
    """A query meets the keys at its own position and before.

        allowed(i, j) = (j <= i)

    Time and memory O(T S) per head. Positions decide, not indices: with more keys than queries
    (a memory, a cache) the queries are the last positions.

    Example:
        >>> from keras_attn.patterns import Causal
        >>> Causal()
        Causal()

    Differs from the paper: none.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2.3.
    """

    def _pairwise(self, i, j):
        return j <= i
