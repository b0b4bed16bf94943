"""Attention of each block of queries to the keys of its own and neighbouring blocks."""

from keras import ops

from keras_attn.attention.positions import PositionRange, head_positions
from keras_attn.attention.tiles import Tile, attend_tiles, blocks_in_tile
from keras_attn.ops.shapes import ceil_div, pad, size, sizes, slice_axis

# Scores of one tile: few enough for a processor's cache, enough to outweigh the loop around them.
TILE_SCORES = 2**20


def windows(
    operands,
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
    """Attention in which a query meets keys up to `before` blocks back and `after` ahead.

    Blocks are aligned to the keys; the queries stand where the last T of S keys do. Time
    O(T (1 + before + after) block) and memory O(T + S) per head.

    Args:
        operands: `AttentionInputs`.
        allowed: function of query positions (..., T, 1) and key positions (..., 1, S); None allows
            all of the window. It gets the `extras` too.
        block: int. Length t of a block.
        before, after: ints. Neighbouring blocks.
        repeats: bool. Whether `allowed` looks the same from every block, and lets a query meet the
            key where it stands: then it is asked once, not in every tile.
        bias: function of the same positions, then `extras`, added to the logits.
        extras: tensors (B or 1, N or 1, T, .), cut like the queries.
        spacing: int. Distance of neighbouring positions, where it is the same in all blocks and
            the positions themselves are not a `PositionRange`.
        log_weight: bool. Whether to give the log weight too, for `merge`.

    Returns:
        Output (B, N, T, Hv) and log weight (B, N, T, 1) or None.
    """
    length, num_keys = size(operands.query, 2), size(operands.key, 2)
    first = num_keys - length  # the key that stands where the first query does
    start = first // block * block  # of the first block
    neighbours = before + after
    window = (1 + neighbours) * block
    count = ceil_div(num_keys - start, block)
    # As many as neighbours, or tiles would overlap twice.
    group = blocks_in_tile(operands.query, block * window, TILE_SCORES, count, least=neighbours)
    groups = ceil_div(count, group)
    total = groups * group * block
    batch = size(operands.query, 0)

    def cut_queries(x):  # (B, N, T, H) -> (groups, group, B, N, t, H)
        x = pad(x, first - start, total - (first - start) - length)
        return _blocks(x, groups, group, block)

    def cut_keys(x):  # (B, N, S, H) -> (groups, group + neighbours, B, N, t, H)
        whole = (groups + 1) * group if neighbours else groups * group
        x = pad(x, before * block, start + whole * block - before * block - num_keys)
        x = slice_axis(x, start, whole * block, axis=2)
        x = _blocks(x, ceil_div(whole, group), group, block)
        if not neighbours:
            return x
        own = slice_axis(x, 0, groups, axis=0)
        ahead = slice_axis(slice_axis(x, 1, groups, axis=0), 0, neighbours, axis=1)
        return ops.concatenate([own, ahead], axis=1)

    def join(x):  # (groups, group * B, N, t, H) -> (B, N, T, H)
        _, _, num_heads, _, width = x.shape
        x = ops.reshape(x, (groups * group, batch, num_heads, block, width))
        x = ops.transpose(x, (1, 2, 0, 3, 4))
        x = ops.reshape(x, (batch, num_heads, total, width))
        return slice_axis(x, first - start, length, axis=2)

    def cut(query, key, value, i, j, real, *extras):
        key, value, j, real = (
            ops.concatenate([slice_axis(x, n, group, axis=0) for n in range(1 + neighbours)], axis=3)
            if neighbours
            else x
            for x in (key, value, j, real)
        )
        i, j, real = i, ops.swapaxes(j, -1, -2), ops.swapaxes(real, -1, -2)
        mask = real
        if allowed is not None:
            mask = ops.logical_and(real, allowed(i, j, *extras) if pairs is None else pairs)
        if operands.condition is not None:
            mask = ops.logical_and(mask, operands.condition(i, j))
        added = None if bias is None else flat(bias(i, j, *extras))
        own = pairs is not None and operands.real is None and operands.condition is None
        parts = (flat(x) for x in (query, key, value))
        places = near or (flat(i)[..., 0], flat(j)[..., 0, :])
        return Tile(*parts, *places, flat(mask), added, never_empty=own)

    def flat(x):  # (group, B or 1, N, t, H) -> (group * B, N, t, H)
        shape = sizes(x)
        if x.shape[1] == 1:
            x = ops.broadcast_to(x, (shape[0], batch, *shape[2:]))
        return ops.reshape(x, (shape[0] * batch, *shape[2:]))

    i = head_positions(operands.query_positions)[..., None]
    j, real = operands.key_places()
    pairs = None
    if repeats:
        pairs = allowed(ops.arange(block)[:, None] + before * block, ops.arange(window)[None])
    distances = near = None
    step = getattr(operands.query_positions, "step", spacing)
    if step is not None:
        near = PositionRange(before * block * step, block, step), PositionRange(0, window, step)
        distances = PositionRange((before * block - window + 1) * step, window + block - 1, step)
    queries = [cut_queries(x) for x in (operands.query, i, *extras)]
    keys = [cut_keys(x) for x in (operands.key, operands.value, j, real)]
    tiles = (queries[0], *keys[:2], queries[1], *keys[2:], *queries[2:])
    output, log_weights = attend_tiles(
        operands, cut, tiles, distances=distances, log_weight=log_weight, at_once=2
    )
    return join(output), join(log_weights) if log_weight else None


def _blocks(x, groups, group, block):
    batch, num_heads, _, width = sizes(x)
    x = ops.reshape(x, (batch, num_heads, groups, group, block, width))
    return ops.transpose(x, (2, 3, 0, 1, 4, 5))
