"""A window around each query."""

from keras import ops

from keras_attn.attention.block_local import windows
from keras_attn.ops.checks import check_sizes
from keras_attn.patterns.pattern import Pattern
from keras_attn.registry import register

# Short blocks compute few keys beyond the window, long ones make better matrix products.
LARGEST_BLOCK = 128


@register
class Local(Pattern):
    """A query meets the keys in a window around it.

        allowed(i, j) = (0 <= i - j < window)        causal, the query among its window
        allowed(i, j) = (|i - j| < window)           otherwise

    Queries are cut into blocks, each of which meets the keys of its own and the neighbouring
    blocks that the window reaches. Time O(T window) and memory O(T) per head.

    Args:
        window: int. Number of keys that a query meets, itself included; without `causal`, to
            each side.
        causal: bool.

    Raises:
        ValueError: if `window` < 1.

    Example:
        >>> import keras_attn
        >>> layer = keras_attn.layers.MultiHeadAttention(
        ...     8, 64, pattern=keras_attn.patterns.Local(256))

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

    def attend(self, operands, log_weight=False):
        before = self._neighbours()
        after = 0 if self.causal else before
        return windows(
            operands,
            self.mask_mod,
            self._block(),
            before,
            after,
            repeats=True,
            log_weight=log_weight,
        )

    def keys_per_query(self, num_keys):
        blocks = 1 + self._neighbours() * (1 if self.causal else 2)
        return min(num_keys, blocks * self._block())

    def cache_size(self):
        return self.window

    def decode_keys(self, position, num_keys):
        after = 0 if self.causal else self.window - 1
        return position + ops.arange(1 - self.window, after + 1, dtype="int32")

    def _block(self):
        return min(self.window, LARGEST_BLOCK)

    def _neighbours(self):
        return -(-(self.window - 1) // self._block())

    def get_config(self):
        return {"window": self.window, "causal": self.causal}
