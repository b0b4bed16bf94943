"""Attention of some queries at a time to all keys."""

from keras import ops

from keras_attn.attention.masks import combine_masks
from keras_attn.attention.positions import PositionRange, first_of, head_positions
from keras_attn.attention.tiles import Tile, attend_tiles
from keras_attn.ops.shapes import ceil_div, pad, size, sizes, slice_axis

# Scores of one tile (32 MiB in float32): wide rows for the matrix product, little memory.
TILE_SCORES = 2**23
# Where later queries see more keys, the queries are taken in so many groups; of the pairs that none
# sees, half a group's share is computed: 1/16.
GROUPS = 8
SMALLEST_GROUP = 128


def rows(operands, allowed=None, *, visible=None, bias=None, extras=(), log_weight=False):
    """Exact attention to all keys, some queries at a time.

    Time O(T S), with `visible` little more than the pairs that are visible; memory O(T + S) per
    head.

    Args:
        operands: `AttentionInputs`.
        allowed: function of query positions (..., T, 1) and key positions (..., 1, S); None allows
            all. It gets the `extras` too.
        visible: function of a number of queries that tells how many keys the first so many meet at
            most; None for all.
        bias: function of the same positions, then `extras`, added to the logits.
        extras: tensors (B or 1, N or 1, T, .), cut like the queries.
        log_weight: bool. Whether to give the log weight too, for `merge`.

    Returns:
        Output (B, N, T, Hv) and log weight (B, N, T, 1) or None.
    """
    batch, num_heads, length, _ = sizes(operands.query)
    num_keys = size(operands.key, 2)
    groups = 1 if visible is None else _num_groups(length)
    group = ceil_div(length, groups)
    in_group = ceil_div(group, _tile_length(operands.query, group, num_keys))
    tile = ceil_div(group, in_group)
    count = groups * in_group
    query_positions, key_positions = operands.query_positions, operands.key_positions
    ordered = isinstance(query_positions, PositionRange)
    real = operands.real
    seen = [None]
    if groups > 1:
        known = isinstance(length, int) and isinstance(num_keys, int)
        lesser, greater = (min, max) if known else (ops.minimum, ops.maximum)
        ends = [lesser((n + 1) * in_group * tile, length) for n in range(groups)]
        seen = [greater(visible(end), 1) for end in ends]

    def cut_queries(x):  # (B, N, T, H) -> (tiles, B, N, t, H)
        x = pad(x, 0, count * tile - size(x, 2))
        x = ops.reshape(x, (*sizes(x)[:2], count, tile, size(x, 3)))
        return ops.transpose(x, (2, 0, 1, 3, 4))

    def join(x):  # (tiles, B, N, t, H) -> (B, N, T, H)
        x = ops.transpose(x, (1, 2, 0, 3, 4))
        x = ops.reshape(x, (batch, num_heads, count * tile, x.shape[-1]))
        return slice_axis(x, 0, length, axis=2)

    def cut(query, i, *tensors):
        *extras, key, value = tensors
        places, present = key_positions, real
        if groups > 1:
            places, present = first_of(places, size(key, 2)), first_of(present, size(key, 2))
        near = i[..., 0], places
        if ordered:
            near = PositionRange(i[0, 0, 0, 0], tile, query_positions.step), places
        j = head_positions(places)[:, :, None, :]
        mask = combine_masks(
            None if present is None else present[:, :, None, :],
            None if allowed is None else allowed(i, j, *extras),
            None if operands.condition is None else operands.condition(i, j),
        )
        return Tile(query, key, value, *near, mask, None if bias is None else bias(i, j, *extras))

    distances = None
    if ordered:
        # A tile of nothing but padding stands in order too: its distances are looked up.
        query_positions = first_of(query_positions, count * tile)
        step = query_positions.step
        lowest = query_positions.start - key_positions.start - (num_keys - 1) * step
        distances = PositionRange(lowest, count * tile + num_keys - 1, step)
    output, log_weights = attend_tiles(
        operands,
        cut,
        [
            cut_queries(x)
            for x in (operands.query, head_positions(query_positions)[..., None], *extras)
        ],
        keys=(operands.key, operands.value),
        visible=seen,
        distances=distances,
        log_weight=log_weight,
    )
    return join(output), join(log_weights) if log_weight else None


def _num_groups(length):
    if not isinstance(length, int):
        return GROUPS
    return max(1, min(GROUPS, length // SMALLEST_GROUP))


def _tile_length(query, length, num_keys):
    batch, num_heads = query.shape[:2]
    per_query = (batch or 1) * num_heads * num_keys
    if isinstance(per_query, int) and isinstance(length, int):
        return min(length, max(TILE_SCORES // per_query // 32 * 32, 32))
    tile = ops.maximum(TILE_SCORES // per_query // 32 * 32, 32)
    return ops.minimum(ops.cast(tile, "int32"), length)
