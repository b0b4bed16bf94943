"""Blocks of a sequence that look back."""

from keras import ops

from keras_attn.attention.block_local import attend_block_local, block_local_tiles
from keras_attn.ops.checks import check_sizes
from keras_attn.ops.shapes import ceil_div
from keras_attn.patterns.pattern import Pattern
from keras_attn.registry import register


@register
class BlockLocal1D(Pattern):
    """A query attends to the keys before it in its own block and in a stretch before the block.

        allowed(i, j) = j <= i  and  j >= block_length * floor(i / block_length) - lookback

    All queries of a block share their keys. Time O(T (block_length + lookback)) and memory O(T)
    per head.

    Use it for long sequences, such as images read row by row, at a cost linear in the length.

    Args:
        block_length: int. Length of the blocks, which start at position 0.
        lookback: int. How many keys before the block.

    Raises:
        ValueError: if `block_length` < 1 or `lookback` < 0.

    Example:
        >>> from keras_attn import layers, patterns
        >>> pattern = patterns.BlockLocal1D(256, lookback=256)
        >>> layer = layers.MultiHeadAttention(4, 128, pattern=pattern)

    Differs from the paper: none; Tensor2Tensor's version looks back one block, and attends to
        everything before the query in sequences of less than two blocks.

    Reference: [Parmar et al., 2018](https://arxiv.org/abs/1802.05751), section 3.3, 1D local
        attention.
    """

    causal = True
    supports_segments = True

    def __init__(self, block_length, lookback):
        check_sizes(block_length=block_length)
        check_sizes(least=0, lookback=lookback)
        self.block_length = int(block_length)
        self.lookback = int(lookback)

    def mask_mod(self, i, j):
        start = i // self.block_length * self.block_length
        return ops.logical_and(j <= i, j >= start - self.lookback)

    def attend(self, inputs, log_weight=False):
        # The blocks of a document begin anywhere in those of a packed row.
        is_packed = bool(inputs.query_segments)
        lookback = self.lookback + (self.block_length - 1) * is_packed
        before = ceil_div(lookback, self.block_length)
        return attend_block_local(
            *(inputs, self.mask_mod, self.block_length, before),
            repeats=not is_packed,
            log_weight=log_weight,
        )

    def tiles(self, inputs):
        before = ceil_div(self.lookback, self.block_length)
        return block_local_tiles(inputs, self.block_length, before)

    def keys_per_query(self, num_keys):
        return min(num_keys, (1 + ceil_div(self.lookback, self.block_length)) * self.block_length)

    def cache_size(self):
        return self.lookback + self.block_length

    def decode_keys(self, position, num_keys):
        first = position // self.block_length * self.block_length - self.lookback
        return first + ops.arange(self.cache_size(), dtype="int32")
