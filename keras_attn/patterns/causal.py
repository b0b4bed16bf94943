"""Causal attention."""

import functools

from keras_attn.attention.causal import CausalKeys
from keras_attn.patterns.pattern import Pattern
from keras_attn.registry import register


@register
class Causal(Pattern):
    """A query attends to the keys at its own position and before.

        allowed(i, j) = (j <= i)

    Time O(T S) per head; memory too where the matrix of scores is made, else O(T + S). Positions
    decide, not indices: with more keys than queries (a memory, a cache) the queries are the last
    positions.

    Use it for language models and decoders, which must not read the future.

    Example:
        >>> import keras_attn
        >>> keras_attn.layers.MultiHeadAttention(8, 64, pattern="causal").pattern
        Causal()

    Differs from the paper: none.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2.3.
    """

    causal = True
    simple_rule = "causal"

    def mask_mod(self, i, j):
        return j <= i

    @functools.cached_property
    def plan(self):
        return CausalKeys(self.mask_mod)


def make_causal(pattern):
    """Return a pattern without the keys after the query, `pattern & Causal()`."""
    if pattern.causal:
        return pattern
    return Causal() if pattern.simple_rule == "full" else pattern & Causal()
