"""Attention of each block of queries to the keys of its own and neighbouring blocks."""

import dataclasses

from keras import ops

from keras_attn.attention.inputs import PositionRange, positions_by_head
from keras_attn.attention.tiles import Tile, attend_tiles, blocks_per_tile
from keras_attn.ops.shapes import ceil_div, pad, size, sizes, slice_axis


@dataclasses.dataclass(frozen=True)
class BlockLayout:
    """Cuts a sequence into tiles of blocks, and joins what the tiles computed.

    Blocks are aligned to the keys; the queries are at the positions of the last T of S keys. A tile
    holds `group` blocks of queries, and the keys of these blocks and of their `before + after`
    neighbours.

    Args:
        batch, length, num_keys: B, T and S, ints or tensors.
        block: length t of a block.
        before, after: number of neighbouring blocks.
        group, groups: blocks of a tile, and number of tiles.
    """

    batch: object
    length: object
    num_keys: object
    block: object
    before: int
    after: int
    group: object
    groups: object

    @classmethod
    def of(cls, inputs, block, before, after):
        """Lay out the blocks of `AttentionInputs`."""
        batch, _, length, _ = sizes(inputs.query)
        num_keys = size(inputs.key, 2)
        count = ceil_div(num_keys - (num_keys - length) // block * block, block)
        group = blocks_per_tile(
            inputs.query,
            block * (1 + before + after) * block,
            inputs.tile_sizes.block_scores,
            count,
            least=before + after,  # or tiles would overlap twice
        )
        groups = ceil_div(count, group)
        return cls(batch, length, num_keys, block, before, after, group, groups)

    @property
    def neighbours(self):
        return self.before + self.after

    @property
    def window(self):
        """Number of keys that a block of queries meets."""
        return (1 + self.neighbours) * self.block

    @property
    def first(self):
        """Index of the key at the position of the first query."""
        return self.num_keys - self.length

    @property
    def start(self):
        """Index of the first key of the first block."""
        return self.first // self.block * self.block

    def cut_queries(self, tensors):
        """(B, N, T, H) -> (groups, group, B, N, t, H), each tensor."""
        front = self.first - self.start
        back = self.groups * self.group * self.block - front - self.length
        padded = [pad(x, front, back) for x in tensors]
        return self._tiles(padded, self.groups)

    def cut_keys(self, tensors):
        """(B, N, S, H) -> (groups, group + neighbours, B, N, t, H), each tensor."""
        groups = self.groups + 1 if self.neighbours else self.groups
        total, front = groups * self.group * self.block, self.before * self.block
        back = self.start + total - front - self.num_keys
        padded = [slice_axis(pad(x, front, back), self.start, total, axis=2) for x in tensors]
        tiles = self._tiles(padded, groups)
        if not self.neighbours:
            return tiles
        own = [slice_axis(x, 0, self.groups, axis=0) for x in tiles]
        ahead = [
            slice_axis(slice_axis(x, 1, self.groups, axis=0), 0, self.neighbours, axis=1)
            for x in tiles
        ]
        return [ops.concatenate(pair, axis=1) for pair in zip(own, ahead, strict=True)]

    def _tiles(self, tensors, groups):
        found = []
        for x in tensors:
            batch, num_heads, _, width = sizes(x)
            x = ops.reshape(x, (batch, num_heads, groups, self.group, self.block, width))
            found.append(ops.transpose(x, (2, 3, 0, 1, 4, 5)))
        return found

    def windows(self, tensors):
        """(group + neighbours, B, N, t, H) -> (group, B, N, window, H), each tensor of a tile."""
        if not self.neighbours:
            return tensors
        offsets = range(1 + self.neighbours)
        found = []
        for x in tensors:
            shifted = [slice_axis(x, offset, self.group, axis=0) for offset in offsets]
            found.append(ops.concatenate(shifted, axis=3))
        return found

    def flatten(self, tensors):
        """(group, B or 1, N, t, H) -> (group * B, N, t, H), each tensor of a tile; None stays."""
        found = []
        for x in tensors:
            if x is not None:
                shape = sizes(x)
                if x.shape[1] == 1:
                    x = ops.broadcast_to(x, (shape[0], self.batch, *shape[2:]))
                x = ops.reshape(x, (shape[0] * self.batch, *shape[2:]))
            found.append(x)
        return found

    def join(self, x):
        """(groups, group * B, N, t, H) -> (B, N, T, H)."""
        _, _, num_heads, _, width = x.shape
        blocks = self.groups * self.group
        x = ops.reshape(x, (blocks, self.batch, num_heads, self.block, width))
        x = ops.transpose(x, (1, 2, 0, 3, 4))
        x = ops.reshape(x, (self.batch, num_heads, blocks * self.block, width))
        return slice_axis(x, self.first - self.start, self.length, axis=2)


def attend_block_local(
    inputs,
    allowed,
    block,
    before=0,
    after=0,
    *,
    repeats=False,
    bias=None,
    extras=(),
    spacing=None,
    log_weight=False,
):
    """Compute attention in which a query meets keys of its own and neighbouring blocks.

    Time O(T (1 + before + after) block) and memory O(T + S) per head.

    Args:
        inputs: `AttentionInputs`.
        allowed: function of query positions (..., T, 1), key positions (..., 1, S) and the
            `extras`; None allows all of the window.
        block: int. Length t of a block.
        before, after: ints. Neighbouring blocks.
        repeats: bool. True if `allowed` is the same for every block and lets a query meet the key
            at its own position: then it is computed once, not in every tile.
        bias: function of the same arguments, added to the logits.
        extras: tensors (B or 1, N or 1, T, .), cut like the queries.
        spacing: int. Distance of neighbouring positions, where it is the same in all blocks and
            the positions themselves are not a `PositionRange`.
        log_weight: bool. True to return the log weight too, for `merge_by_logsumexp`.

    Returns:
        Output (B, N, T, Hv) and log weight (B, N, T, 1) or None.
    """
    layout = BlockLayout.of(inputs, block, before, after)
    step = spacing
    if isinstance(inputs.query_positions, PositionRange):
        step = inputs.query_positions.step
    distances = near = pairs = None
    if step is not None:
        # Distances are the same in every block: scores get those of the first.
        own = before * block
        near = PositionRange(own * step, block, step), PositionRange(0, layout.window, step)
        lowest = (own - layout.window + 1) * step
        distances = PositionRange(lowest, layout.window + block - 1, step)
    if repeats:
        pairs = allowed(ops.arange(block)[:, None] + before * block, ops.arange(layout.window)[None])
    never_empty = pairs is not None and inputs.key_mask is None and inputs.mask_fn is None
    needs_positions = not (pairs is not None and inputs.mask_fn is None and near and bias is None)

    queries, keys = [inputs.query, *extras], [inputs.key, inputs.value, inputs.mask_of_keys()]
    if needs_positions:
        queries.append(positions_by_head(inputs.query_positions)[..., None])
        keys.append(inputs.positions_of_keys())
    num_queries = len(queries)

    def cut(*tensors):
        query, *of_queries = tensors[:num_queries]
        key, value, real, *j = layout.windows(tensors[num_queries:])
        mask, added = ops.swapaxes(real, -1, -2), None
        positions = near
        if needs_positions:
            *own, i = of_queries
            j = ops.swapaxes(j[0], -1, -2)
            if allowed is not None:
                met = allowed(i, j, *own) if pairs is None else pairs
                mask = ops.logical_and(mask, met)
            if inputs.mask_fn is not None:
                mask = ops.logical_and(mask, inputs.mask_fn(i, j))
            added = None if bias is None else bias(i, j, *own)
            if near is None:
                i, j = layout.flatten([i, j])
                positions = i[..., 0], j[..., 0, :]
        else:
            mask = ops.logical_and(mask, pairs)
        query, key, value, mask, added = layout.flatten([query, key, value, mask, added])
        return Tile(query, key, value, *positions, mask, added, never_empty=never_empty)

    tiles = (*layout.cut_queries(queries), *layout.cut_keys(keys))
    output, log_weights = attend_tiles(
        inputs, cut, tiles, distances=distances, log_weight=log_weight, at_once=2
    )
    return layout.join(output), layout.join(log_weights) if log_weight else None
