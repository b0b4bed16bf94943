"""A window with gaps."""

import functools

from keras import ops

from keras_attn.attention.plans import Window
from keras_attn.ops.checks import check_sizes
from keras_attn.patterns.pattern import KeptKeys, Pattern
from keras_attn.patterns.strided import Columns
from keras_attn.registry import register


@register
class Dilated(Pattern):
    """A query attends to every `dilation`-th key in a window around it.

        d = i - j,   d mod dilation = 0
        allowed(i, j) = (0 <= d < window dilation)      causal, the query among its window
        allowed(i, j) = (|d| < window dilation)         otherwise

    The window reaches `dilation` times as far as that of `Local` at the same cost. Layers of
    different dilations, or heads of different ones by `PerHead`, fill the gaps. The sequence is
    folded into `dilation` columns, in which the window has no gaps. Time O(T window) and memory
    O(T) per head. A cache keeps the last (`window` - 1) `dilation` + 1 keys.

    Use it for long sequences in which few layers must reach far.

    Args:
        window: int. Number of keys that a query attends to, itself included; without `causal`, to
            each side.
        dilation: int. Distance of neighbouring keys of the window.
        causal: bool. If False, the window reaches to both sides.

    Raises:
        ValueError: if `window` < 1 or `dilation` < 1.

    Example:
        >>> from keras_attn import layers, patterns
        >>> heads = [patterns.Local(64), patterns.Dilated(64, 4)]
        >>> layer = layers.MultiHeadAttention(2, 64, pattern=patterns.PerHead(heads))

    Differs from the paper: `window` keys up to the query, or 2 `window` - 1 around it, as `Local`.

    Reference: [Beltagy et al., 2020](https://arxiv.org/abs/2004.05150), section 3.1.
    """

    def __init__(self, window, dilation, causal=True):
        check_sizes(window=window, dilation=dilation)
        self.window = int(window)
        self.dilation = int(dilation)
        self.causal = bool(causal)

    def mask_mod(self, i, j):
        distance = i - j
        reach = self.window * self.dilation
        in_column = distance % self.dilation == 0
        if self.causal:
            near = ops.logical_and(distance >= 0, distance < reach)
        else:
            near = ops.abs(distance) < reach
        return ops.logical_and(in_column, near)

    @functools.cached_property
    def plan(self):
        return Columns(self.mask_mod, self.dilation, Window(None, self.window, self.causal))

    @property
    def kept_keys(self):
        return KeptKeys((self.window - 1) * self.dilation + 1, positions=self._keys_in_reach)

    def _keys_in_reach(self, position, num_keys):
        after = 0 if self.causal else self.window - 1
        return position + self.dilation * ops.arange(1 - self.window, after + 1, dtype="int32")
