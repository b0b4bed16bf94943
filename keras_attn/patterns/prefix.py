"""The first keys of a sequence."""

import functools

from keras import ops

from keras_attn.attention.plans import FirstKeys
from keras_attn.ops.checks import check_sizes
from keras_attn.patterns.pattern import KeptKeys, Pattern
from keras_attn.registry import register


@register
class Prefix(Pattern):
    """Every query attends to the first keys, also to those after its own position.

        allowed(i, j) = (j < length)

    `Causal() | Prefix(n)` is a prefix language model: the first n tokens, the input, attend to each
    other in both directions, and the others also to all before them. A cache must get the prefix in
    one call, since its first tokens attend to its last. Time O(T length) and memory O(T + S) per
    head.

    Use it for inputs of a fixed length before a text that is generated.

    Args:
        length: int. Number of first keys; 0 allows no pair.

    Raises:
        ValueError: if `length` < 0.

    Example:
        >>> from keras_attn import layers, patterns
        >>> prefix = patterns.Causal() | patterns.Prefix(64)
        >>> layer = layers.MultiHeadAttention(8, 64, pattern=prefix)

    Differs from the paper: the prefix has the same length in all rows.

    Reference: [Raffel et al., 2020](https://arxiv.org/abs/1910.10683), section 3.2.1.
    """

    def __init__(self, length):
        check_sizes(least=0, length=length)
        self.length = int(length)

    def mask_mod(self, i, j):
        return ops.logical_and(j < self.length, ops.ones_like(i, dtype="bool"))

    @functools.cached_property
    def plan(self):
        return FirstKeys(self.mask_mod, self.length)

    @property
    def kept_keys(self):
        return KeptKeys(positions=lambda position, num_keys: ops.arange(self.length, dtype="int32"))
