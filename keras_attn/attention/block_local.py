"""Attention of each block of queries to the keys of its own and neighbouring blocks."""

from keras import ops

from keras_attn.attention.inputs import (
    PositionRange,
    distances_between,
    positions_by_head,
)
from keras_attn.attention.segments import pairs_in_documents
from keras_attn.attention.tiles import Tile, TileCount, attend_tiles, blocks_per_tile
from keras_attn.ops.shapes import ceil_div, greater, pad, size, sizes, slice_axis, stack_blocks


class BlockLayout:
    """Cuts a sequence into tiles of blocks, and joins the results of the tiles.

    Blocks of length t are aligned to the keys; the queries are the last T of S positions. A tile
    holds `group` blocks of queries, and the keys of these blocks and of their neighbours, `before`
    and `after` each block.
    """

    def __init__(self, inputs, block, before, after):
        self.batch, _, self.length, _ = sizes(inputs.query)
        self.num_keys = size(inputs.key, 2)
        self.block, self.before, self.neighbours = block, before, before + after
        self.window = (1 + self.neighbours) * block  # keys that a block of queries attends to
        self.first = self.num_keys - self.length  # key at the position of the first query
        self.start = self.first // block * block  # first key of the first block
        count = greater(ceil_div(self.num_keys - self.start, block), 1)  # a loop needs a tile
        sizes_of_tile = block * self.window, inputs.tile_sizes.block_scores, count
        # With fewer blocks than neighbours, tiles would overlap twice.
        self.group = blocks_per_tile(inputs.query, *sizes_of_tile, least=self.neighbours)
        self.groups = ceil_div(count, self.group)  # number of tiles

    def cut_queries(self, tensors):
        """(B, N, T, H) -> (groups, group, B, N, t, H), each tensor."""
        front = self.first - self.start
        back = self.groups * self.group * self.block - front - self.length
        shape = self.groups, self.group, self.block
        return [stack_blocks(pad(x, front, back), *shape) for x in tensors]

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
        offsets, found = range(1 + self.neighbours), []
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
        blocks, num_heads, width = self.groups * self.group, x.shape[2], x.shape[4]
        x = ops.reshape(x, (blocks, self.batch, num_heads, self.block, width))
        x = ops.transpose(x, (1, 2, 0, 3, 4))
        x = ops.reshape(x, (self.batch, num_heads, blocks * self.block, width))
        return slice_axis(x, self.first - self.start, self.length, axis=2)


def block_local_tiles(inputs, block, before=0, after=0):
    """Return the `TileCount`s of `attend_block_local`."""
    layout = BlockLayout(inputs, block, before, after)
    groups, window = layout.groups, layout.window
    at_once = layout.group * layout.batch * inputs.query.shape[1]
    tiles = TileCount(groups * at_once, at_once, block, window, groups > 1, block + window)
    return [tiles._replace(key_copies=1 + layout.neighbours / layout.group)]


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
    """Compute attention in which a query attends to keys of its own and neighbouring blocks.

    Time O(T (1 + before + after) block) and memory O(T + S) per head.
    Return the output (B, N, T, Hv) and, with `log_weight`, the log weight (B, N, T, 1) or None.

    Args:
        inputs: `AttentionInputs`.
        allowed: function of query positions (..., T, 1), key positions (..., 1, S) and `extras`;
            None allows all of the window.
        block: int. Length t of a block. before, after: ints. Neighbouring blocks.
        repeats: bool. True if `allowed` is the same for every block and lets a query attend to the
            key at its own position: then it is computed once, not in every tile.
        bias: function of the same arguments, added to the logits.
        extras: tensors (B or 1, N or 1, T, .), cut like the queries.
        spacing: int. The regular distance of positions that are no `PositionRange`; None if none.
    """
    layout, own = BlockLayout(inputs, block, before, after), before * block
    step = spacing
    if isinstance(inputs.query_positions, PositionRange):
        step = inputs.query_positions.step
    distances = near = pairs = None
    if step is not None and (inputs.score.is_relative or not inputs.score.uses_positions):
        # Distances are the same in every block: scores get those of the first.
        near = PositionRange(own * step, block, step), PositionRange(0, layout.window, step)
        distances = distances_between(*near)
    if repeats:
        pairs = allowed(ops.arange(block)[:, None] + own, ops.arange(layout.window)[None])
    is_same_in_all = repeats and inputs.mask_fn is None
    never_empty = is_same_in_all and inputs.key_mask is None
    needs_positions = not (is_same_in_all and near and bias is None)

    segments = inputs.query_segments
    queries, keys = [inputs.query, *segments, *extras], [inputs.key, inputs.value]
    if needs_positions:
        queries.append(positions_by_head(inputs.query_positions)[..., None])
        keys.append(inputs.positions_of_keys())
    keys.append(inputs.mask_of_keys())
    num_queries = len(queries)

    def cut(*tensors):
        query, *of_queries = tensors[:num_queries]
        key, value, *of_keys, real = layout.windows(tensors[num_queries:])
        of_keys = [ops.swapaxes(x, -1, -2) for x in (*of_keys, real)]
        mask, added, i, j = of_keys[-1], None, None, None
        if segments:
            document, *of_queries = of_queries
            mask = ops.equal(document, mask)
        if pairs is not None:
            mask = ops.logical_and(mask, pairs)
        if needs_positions:
            (*extras, i), j = of_queries, of_keys[0]
            if segments and near is not None:
                i, j, _ = pairs_in_documents(i, j, document, of_keys[1])
            if pairs is None and allowed is not None:
                mask = ops.logical_and(mask, allowed(i, j, *extras))
            if inputs.mask_fn is not None:
                mask = ops.logical_and(mask, inputs.mask_fn(i, j))
            added = None if bias is None else bias(i, j, *extras)
        if near is not None:
            query, key, value, mask, added = layout.flatten([query, key, value, mask, added])
            return Tile(query, key, value, *near, mask, added, never_empty)
        flat = layout.flatten([query, key, value, i, j, mask, added])
        query, key, value, i, j, mask, added = flat
        return Tile(query, key, value, i[..., 0], j[..., 0, :], mask, added, never_empty)

    tiles = (*layout.cut_queries(queries), *layout.cut_keys(keys))
    options = {"distances": distances, "log_weight": log_weight, "at_once": 2}
    return attend_tiles(inputs, cut, layout.join, tiles, **options)
