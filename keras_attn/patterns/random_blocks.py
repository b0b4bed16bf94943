"""Blocks that attend to randomly drawn blocks."""

import functools

import numpy as np
from keras import ops

from keras_attn.attention.block_sparse import BlockSparse
from keras_attn.ops.checks import check_sizes
from keras_attn.ops.shapes import ceil_div
from keras_attn.patterns.pattern import KeptKeys, Pattern
from keras_attn.registry import register


@register
class Random(Pattern):
    """The queries of a block attend to a few blocks that are drawn at random once.

        allowed(i, j) = floor(j / block_length) in R[floor(i / block_length)]

    R[b] has `num_blocks` different blocks, none of them the first, b or a neighbour of b, which a
    window and global positions cover: `Local(97, causal=False) | Global(64) | Random(64, 3, 4096)`
    is BigBird. A pair in several of its parts counts once. Rows of R are shorter where fewer blocks
    are left. R depends on the arguments alone: give each layer a `seed` of its own, or each head by
    `PerHead`. Time O(T num_blocks block_length) and memory O(T) per head.

    Use it for long texts, beside a window, so that few layers connect all positions.

    Args:
        block_length: int. Length of the blocks, which start at position 0.
        num_blocks: int. Number of drawn blocks for each block of queries.
        max_length: int. Length of the longest sequence; the draw depends on it without `causal`.
        causal: bool. If True, only blocks before a block are drawn.
        seed: int. Seed of the draw, from 0 on.

    Raises:
        ValueError: if a length or `num_blocks` is below 1, `seed` is below 0, or the sequence is
            longer than `max_length`.

    Example:
        >>> from keras_attn import layers, patterns
        >>> window, first = patterns.Local(97, causal=False), patterns.Global(64)
        >>> big_bird = window | first | patterns.Random(64, 3, max_length=4096)
        >>> layer = layers.MultiHeadAttention(8, 64, pattern=big_bird)

    Differs from the paper: heads share the draw, unless `PerHead` gives each a seed of its own; the
        window counts positions, where the paper's counts blocks.

    Reference: [Zaheer et al., 2020](https://arxiv.org/abs/2007.14062), section 2.
    """

    def __init__(self, block_length, num_blocks, max_length, causal=False, seed=0):
        check_sizes(block_length=block_length, num_blocks=num_blocks, max_length=max_length)
        check_sizes(least=0, seed=seed)
        self.block_length = int(block_length)
        self.num_blocks = int(num_blocks)
        self.max_length = int(max_length)
        self.causal = bool(causal)
        self.seed = int(seed)

    def blocks(self):
        """Return the drawn blocks R, int32 (blocks, num_blocks), in order; -1 for none."""
        count = ceil_div(self.max_length, self.block_length)
        return _draw(count, self.num_blocks, self.causal, self.seed)

    def mask_mod(self, i, j):
        table = self.blocks()
        own, other = i // self.block_length, j // self.block_length
        row = ops.clip(own, 0, len(table) - 1)
        columns = [ops.take(ops.convert_to_tensor(column), row) for column in table.T]
        drawn = functools.reduce(ops.logical_or, [other == column for column in columns])
        is_position = ops.logical_and(row == own, j >= 0)
        return ops.logical_and(drawn, is_position)

    @functools.cached_property
    def plan(self):
        starts = np.arange(len(self.blocks()) + 1) * self.block_length
        # The lists hold allowed keys alone; -1 fills the short ones.
        return BlockSparse(self.mask_mod, starts, self._keys(), lambda i, j: j >= 0)

    @property
    def kept_keys(self):
        return KeptKeys(positions=self._keys_of_block)

    def check(self, score=None, length=None):
        if length is not None and length > self.max_length:
            raise ValueError(
                "`max_length` must be the length of the longest sequence. Received: "
                f"max_length={self.max_length}, {length} positions."
            )

    def _keys_of_block(self, position, num_keys):
        keys = self._keys()
        block = ops.clip(position // self.block_length, 0, len(keys) - 1)
        return ops.take(ops.convert_to_tensor(keys), block, axis=0)

    def _keys(self):
        """Return the positions of the drawn blocks, int32 (blocks, keys); -1 for none."""
        table = self.blocks()[..., None]
        keys = table * self.block_length + np.arange(self.block_length, dtype="int32")
        return np.where(table < 0, -1, keys).reshape(len(table), -1).astype("int32")


@functools.lru_cache(maxsize=64)
def _draw(count, num_blocks, causal, seed):
    # NumPy keeps the numbers of this generator the same in all versions, so that a saved pattern
    # draws the same blocks again.
    generator = np.random.RandomState(seed)
    table = np.full((count, num_blocks), -1, "int32")
    for block, row in enumerate(table):
        near = (0, block - 1, block, block + 1)
        others = [n for n in range(block if causal else count) if n not in near]
        drawn = sorted(generator.permutation(others)[:num_blocks].astype("int32"))
        row[: len(drawn)] = drawn
    return table
