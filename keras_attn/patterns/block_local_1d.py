"""Blocks of a sequence that look back."""

import functools

from keras import ops

from keras_attn.attention.plans import BlockLocal
from keras_attn.ops.checks import check_sizes
from keras_attn.ops.shapes import ceil_div
from keras_attn.patterns.pattern import KeptKeys, Pattern
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

    def __init__(self, block_length, lookback):
        check_sizes(block_length=block_length)
        check_sizes(least=0, lookback=lookback)
        self.block_length = int(block_length)
        self.lookback = int(lookback)

    def mask_mod(self, i, j):
        start = i // self.block_length * self.block_length
        return ops.logical_and(j <= i, j >= start - self.lookback)

    @functools.cached_property
    def plan(self):
        return AlignedBlocks(self.mask_mod, self.block_length, self.lookback)

    @property
    def kept_keys(self):
        return KeptKeys(self.lookback + self.block_length, positions=self._keys_in_reach)

    def _keys_in_reach(self, position, num_keys):
        first = position // self.block_length * self.block_length - self.lookback
        return first + ops.arange(self.lookback + self.block_length, dtype="int32")


class AlignedBlocks(BlockLocal):
    """The keys of a query's own block and of `lookback` keys before it, also in packed rows."""

    def __init__(self, mask_mod, block, lookback):
        super().__init__(mask_mod, block, ceil_div(lookback, block), repeats=True)
        self.lookback = lookback

    def attend_documents(self, inputs, log_weight=False):
        # The blocks of a document begin anywhere in those of a packed row.
        before = ceil_div(self.lookback + self.block - 1, self.block)
        return BlockLocal(self.mask_mod, self.block, before).attend_row(inputs, log_weight)
