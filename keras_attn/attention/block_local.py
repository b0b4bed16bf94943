"""Attention of each block of queries to the keys of its own and neighbouring blocks."""

import dataclasses

from keras import ops

from keras_attn.attention.inputs import PositionRange, positions_by_head
from keras_attn.attention.tiles import Tile, attend_tiles, blocks_per_tile
from keras_attn.ops.shapes import ceil_div, pad, size, sizes, slice_axis, stack_blocks


@dataclasses.dataclass(frozen=True)
class BlockLayout:
    """Cuts a sequence into tiles of blocks, and joins the results of the tiles.

    Blocks are aligned to the keys; the queries are at the positions of the last T of S keys. A tile
    holds `group` blocks of queries, and the keys of these blocks and of their neighbours.

    Args:
        batch, length, num_keys: B, T and S, ints or tensors.
        block: length t of a block.
        before, neighbours: number of neighbouring blocks before a block, and of all.
        first: index of the key at the position of the first query.
        start: index of the first key of the first block.
        group, groups: blocks of a tile, and number of tiles.
    """

    batch: object
    length: object
    num_keys: object
    block: object
    before: int
    neighbours: int
    first: object
    start: object
    group: object
    groups: object

    @classmethod
    def of(cls, inputs, block, before, after):
        """Lay out the blocks of `AttentionInputs`."""
        batch, _, length, _ = sizes(inputs.query)
        num_keys = size(inputs.key, 2)
        neighbours, first = before + after, num_keys - length
        start = first // block * block
        count = ceil_div(num_keys - start, block)
        group = blocks_per_tile(
            inputs.query,
            block * (1 + neighbours) * block,
            inputs.tile_sizes.block_scores,
            count,
            least=neighbours,  # or tiles would overlap twice
        )
        groups = ceil_div(count, group)
        return cls(
            *(batch, length, num_keys, block, before, neighbours, first, start, group, groups)
        )

    @property
    def window(self):
        """Number of keys that a block of queries meets."""
        return (1 + self.neighbours) * self.block

    def cut_queries(self, tensors):
        """(B, N, T, H) -> (groups, group, B, N, t, H), each tensor."""
        front = self.first - self.start
        back = self.groups * self.group * self.block - front - self.length
        found = []
        for x in tensors:
            x = pad(x, front, back)
            found.append(stack_blocks(x, self.groups, self.group, self.block))
        return found

    def cut_keys(self, tensors):
        """(B, N, S, H) -> (groups, group + neighbours, B, N, t, H), each tensor."""
        groups = self.groups + 1 if self.neighbours else self.groups
        total, front = groups * self.group * self.block, self.before * self.block
        back = self.start + total - front - self.num_keys
        found = []
        for x in tensors:
            x = slice_axis(pad(x, front, back), self.start, total, axis=2)
            x = stack_blocks(x, groups, self.group, self.block)
            if self.neighbours:
                own = slice_axis(x, 0, self.groups, axis=0)
                ahead = slice_axis(x, 1, self.groups, axis=0)
                ahead = slice_axis(ahead, 0, self.neighbours, axis=1)
                x = ops.concatenate([own, ahead], axis=1)
            found.append(x)
        return found

    def windows(self, tensors):
        """(group + neighbours, B, N, t, H) -> (group, B, N, window, H), each tensor of a tile."""
        if not self.neighbours:
            return tensors
        found = []
        for x in tensors:
            shifted = []
            for offset in range(1 + self.neighbours):
                shifted.append(slice_axis(x, offset, self.group, axis=0))
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

    def join(self, tensors):
        """(groups, group * B, N, t, H) -> (B, N, T, H), each tensor; None stays."""
        blocks, found = self.groups * self.group, []
        for x in tensors:
            if x is not None:
                _, _, num_heads, _, width = x.shape
                x = ops.reshape(x, (blocks, self.batch, num_heads, self.block, width))
                x = ops.transpose(x, (1, 2, 0, 3, 4))
                x = ops.reshape(x, (self.batch, num_heads, blocks * self.block, width))
                x = slice_axis(x, self.first - self.start, self.length, axis=2)
            found.append(x)
        return tuple(found)


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
        pairs = allowed(
            ops.arange(block)[:, None] + before * block, ops.arange(layout.window)[None]
        )
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
            if near is not None:
                i = j = None
        else:
            mask, i, j = ops.logical_and(mask, pairs), None, None
        flat = layout.flatten([query, key, value, mask, added, i, j])
        query, key, value, mask, added, i, j = flat
        if near is None:
            positions = i[..., 0], j[..., 0, :]
        return Tile(query, key, value, *positions, mask, added, never_empty=never_empty)

    tiles = (*layout.cut_queries(queries), *layout.cut_keys(keys))
    results = attend_tiles(
        inputs, cut, tiles, distances=distances, log_weight=log_weight, at_once=2
    )
    return layout.join(results)
