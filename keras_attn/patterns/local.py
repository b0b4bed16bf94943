"""A window around each query."""

from keras import ops

from keras_attn.attention.block_local import attend_block_local, block_local_tiles
from keras_attn.attention.inputs import TileSizes
from keras_attn.ops.checks import check_sizes
from keras_attn.patterns.pattern import Pattern
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

    supports_segments = True

    def __init__(self, window, causal=True):
        check_sizes(window=window)
        self.window = int(window)
        self.causal = bool(causal)

    def mask_mod(self, i, j):
        distance = i - j
        if self.causal:
            return ops.logical_and(distance >= 0, distance < self.window)
        return ops.abs(distance) < self.window

    def attend(self, inputs, log_weight=False):
        blocks = blocks_of_window(self.window, self.causal, inputs.tile_sizes)
        return attend_block_local(
            inputs, self.mask_mod, *blocks, repeats=True, log_weight=log_weight
        )

    def tiles(self, inputs):
        return block_local_tiles(
            inputs, *blocks_of_window(self.window, self.causal, inputs.tile_sizes)
        )

    def keys_per_query(self, num_keys):
        block, before, after = blocks_of_window(self.window, self.causal, TileSizes)
        return min(num_keys, (before + 1 + after) * block)

    def cache_size(self):
        return self.window

    def decode_keys(self, position, num_keys):
        after = 0 if self.causal else self.window - 1
        return position + ops.arange(1 - self.window, after + 1, dtype="int32")


def blocks_of_window(window, causal, tile_sizes):
    """Return the length of a block, and the numbers of blocks before and after it in reach."""
    block = min(window, tile_sizes.most_block)
    before = -(-(window - 1) // block)
    return block, before, 0 if causal else before
