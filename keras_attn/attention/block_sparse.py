"""Plan of patterns in which each block of queries attends to a list of keys."""

import numpy as np
from keras import ops

from keras_attn.attention.inputs import combine_masks
from keras_attn.attention.plans import Plan, Tile, TileCount, attend_tiles, group_blocks
from keras_attn.ops.shapes import size, sizes


class BlockSparse(Plan):
    """The keys that a table lists for each block of queries.

    Time O(T K) and memory O(T K / W) per head, for blocks of W queries with K keys each. Positions
    are consecutive from 0; the queries are the last of S.

    Args:
        mask_mod: function of positions, the rule of the pattern.
        starts: int array (blocks + 1,), the first position of each block, and the end of the last.
        keys: int array (blocks, K), the positions of each block's keys, each once; -1 for none.
        listed: function of query positions (..., T, 1) and listed key positions (..., 1, S) that
            decides as `mask_mod` does.
    """

    def __init__(self, mask_mod, starts, keys, listed):
        super().__init__(mask_mod)
        self.starts, self.keys, self.listed = starts, keys, listed

    def attend_row(self, inputs, log_weight=False):
        batch, _, length, _ = sizes(inputs.query)
        num_keys = size(inputs.key, 2)
        first = num_keys - length
        starts, keys = self.starts, self.keys
        width = int(np.diff(starts).max())
        block_of = np.repeat(np.arange(len(keys), dtype="int32"), np.diff(starts))
        offsets = width * np.arange(len(keys)) - starts[:-1]  # blocks are padded to the same width
        place_of = (np.arange(starts[-1]) + offsets[block_of]).astype("int32")

        first_block, group, groups = self._cut_into_tiles(inputs)
        blocks = first_block + ops.arange(groups * group, dtype="int32")
        blocks = ops.minimum(blocks, len(keys) - 1)  # what fills the last tile is not read
        i = ops.expand_dims(ops.take(ops.convert_to_tensor(starts[:-1], "int32"), blocks), 1)
        i = i + ops.arange(width, dtype="int32")  # (blocks, W)
        j = ops.take(ops.convert_to_tensor(keys, "int32"), blocks, axis=0)  # (blocks, K)
        j = ops.where(j < num_keys, j, -1)

        def gather(x, places):  # (B, N, S, H) -> (groups, group, W, B, N, H)
            x = ops.take(ops.transpose(x, (2, 0, 1, 3)), places, axis=0)
            return ops.reshape(x, (groups, group, *sizes(x)[1:]))

        def flat(x):  # (group, W, B or 1, N, H) -> (group * B, N, W, H)
            x = ops.transpose(x, (0, 2, 3, 1, 4))
            if x.shape[1] == 1:
                x = ops.broadcast_to(x, (group, batch, *sizes(x)[2:]))
            return ops.reshape(x, (-1, *sizes(x)[2:]))

        def cut(query, key, value, i, j, *real):
            i, j = (
                flat(ops.expand_dims(x, (-3, -2, -1)))[..., 0] for x in (i, j)
            )  # (group * B, 1, W or K)
            pairs = ops.expand_dims(i, -1), ops.expand_dims(j, -2)
            masks = [ops.swapaxes(flat(x), -1, -2) for x in real]
            if inputs.mask_fn is not None:
                masks.append(inputs.mask_fn(*pairs))
            mask = combine_masks(pairs[1] >= 0, self.listed(*pairs), *masks)
            return Tile(*(flat(x) for x in (query, key, value)), i, j, mask)

        query_indices = ops.clip(i - first, 0, length - 1)
        key_indices = ops.maximum(j, 0)
        tiles = [gather(inputs.query, query_indices)]
        tiles += [gather(x, key_indices) for x in (inputs.key, inputs.value)]
        tiles += [ops.reshape(x, (groups, group, x.shape[-1])) for x in (i, j)]
        if inputs.key_mask is not None:
            tiles.append(gather(ops.expand_dims(inputs.key_mask, -1), key_indices))
        places = ops.take(place_of, first + ops.arange(length, dtype="int32")) - first_block * width

        def join(x):  # (groups, group * B, N, W, H) -> (B, N, T, H)
            x = ops.reshape(x, (groups * group, batch, *x.shape[2:]))
            x = ops.transpose(x, (0, 3, 1, 2, 4))
            x = ops.reshape(x, (-1, *sizes(x)[2:]))
            return ops.transpose(ops.take(x, places, axis=0), (1, 2, 0, 3))

        return attend_tiles(inputs, cut, join, tiles, log_weight=log_weight, at_once=2)

    def _cut_into_tiles(self, inputs):
        """Return the first block of the queries, the blocks of a tile, and the number of tiles."""
        num_keys, widths = size(inputs.key, 2), np.diff(self.starts)
        block_of = np.repeat(np.arange(len(self.keys), dtype="int32"), widths)
        first_block = _entry(block_of, num_keys - size(inputs.query, 2))
        count = _entry(block_of, num_keys - 1) + 1 - first_block
        return first_block, *group_blocks(inputs, count, int(widths.max()), self.keys.shape[1])

    def tiles(self, inputs):
        _, group, groups = self._cut_into_tiles(inputs)
        batch, num_heads = inputs.query.shape[:2]
        width = int(np.diff(self.starts).max())
        at_once = group * batch * num_heads
        return [TileCount(groups * at_once, at_once, width, self.keys.shape[1], groups > 1)]

    def keys_per_query(self, num_keys):
        return min(num_keys, self.keys.shape[1])


def _entry(table, i):
    return int(table[i]) if isinstance(i, int) else ops.take(table, i)
