"""A window around each query."""

import functools

from keras import ops

from keras_attn.attention.plans import Window
from keras_attn.ops.checks import check_sizes
from keras_attn.patterns.pattern import KeptKeys, Pattern
from keras_attn.registry import register


@register
class Local(Pattern):
    """A query attends to the keys in a window around it.

        allowed(i, j) = (0 <= i - j < window)        causal, the query among its window
        allowed(i, j) = (|i - j| < window)           otherwise

    Queries are cut into blocks, each of which attends to the keys of its own and the neighbouring
    blocks that the window reaches. Time O(T window) and memory O(T) per head.

    Use it for long sequences in which near positions matter most; stacked layers reach further.

    Args:
        window: int. Number of keys that a query attends to, itself included; without `causal`, to
            each side.
        causal: bool. If False, the window reaches to both sides.

    Raises:
        ValueError: if `window` < 1.

    Example:
        >>> from keras_attn import layers, patterns
        >>> layer = layers.MultiHeadAttention(8, 64, pattern=patterns.Local(256))

    Differs from the paper: the paper's window has r keys, centred on the query; this one has
        `window` keys up to the query, or 2 `window` - 1 around it.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 4 (restricted
        self-attention); [Child et al., 2019](https://arxiv.org/abs/1904.10509), section 4.3.
    """

    def __init__(self, window, causal=True):
        check_sizes(window=window)
        self.window = int(window)
        self.causal = bool(causal)

    def mask_mod(self, i, j):
        distance = i - j
        if self.causal:
            return ops.logical_and(distance >= 0, distance < self.window)
        return ops.abs(distance) < self.window

    @functools.cached_property
    def plan(self):
        return Window(self.mask_mod, self.window, self.causal)

    @property
    def kept_keys(self):
        return KeptKeys(self.window, positions=self._keys_in_reach)

    def _keys_in_reach(self, position, num_keys):
        after = 0 if self.causal else self.window - 1
        return position + ops.arange(1 - self.window, after + 1, dtype="int32")
