"""Attention of some queries at a time to all keys."""

from keras import ops

from keras_attn.attention.inputs import PositionRange, first_positions, positions_by_head
from keras_attn.attention.masks import combine_masks
from keras_attn.attention.tiles import Tile, attend_tiles
from keras_attn.ops.shapes import ceil_div, pad, size, sizes, slice_axis


def attend_chunked(inputs, allowed=None, *, visible=None, bias=None, extras=(), log_weight=False):
    """Compute exact attention to all keys, some queries at a time.

    Time O(T S), with `visible` little more than the pairs that are visible; memory O(T + S) per
    head.

    Args:
        inputs: `AttentionInputs`.
        allowed: function of query positions (..., T, 1), key positions (..., 1, S) and the
            `extras`; None allows all.
        visible: function of a number of queries that returns how many keys the first so many meet
            at most; None for all.
        bias: function of the same arguments as `allowed`, added to the logits.
        extras: tensors (B or 1, N or 1, T, .), cut like the queries.
        log_weight: bool. True to return the log weight too, for `merge_by_logsumexp`.

    Returns:
        Output (B, N, T, Hv) and log weight (B, N, T, 1) or None.
    """
    batch, num_heads, length, _ = sizes(inputs.query)
    num_keys = size(inputs.key, 2)
    groups = 1 if visible is None else _num_groups(length, inputs.tile_sizes)
    group = ceil_div(length, groups)
    chunk = _chunk_length(inputs, group, num_keys)
    in_group = ceil_div(group, chunk)
    chunk = ceil_div(group, in_group)
    count = groups * in_group
    query_positions, key_positions = inputs.query_positions, inputs.key_positions
    is_ordered = isinstance(query_positions, PositionRange)
    seen = [None]
    if groups > 1:
        is_known = isinstance(length, int) and isinstance(num_keys, int)
        lesser, greater = (min, max) if is_known else (ops.minimum, ops.maximum)
        ends = [lesser((n + 1) * in_group * chunk, length) for n in range(groups)]
        seen = [greater(visible(end), 1) for end in ends]

    def cut_queries(x):  # (B, N, T, H) -> (chunks, B, N, t, H)
        x = pad(x, 0, count * chunk - size(x, 2))
        x = ops.reshape(x, (*sizes(x)[:2], count, chunk, size(x, 3)))
        return ops.transpose(x, (2, 0, 1, 3, 4))

    def join(x):  # (chunks, B, N, t, H) -> (B, N, T, H)
        x = ops.transpose(x, (1, 2, 0, 3, 4))
        x = ops.reshape(x, (batch, num_heads, count * chunk, x.shape[-1]))
        return slice_axis(x, 0, length, axis=2)

    def cut(query, i, *tensors):
        *extras, key, value = tensors
        positions, key_mask = key_positions, inputs.key_mask
        if groups > 1:
            positions = first_positions(positions, size(key, 2))
            key_mask = first_positions(key_mask, size(key, 2))
        near = i[..., 0], positions
        if is_ordered:
            near = PositionRange(i[0, 0, 0, 0], chunk, query_positions.step), positions
        j = positions_by_head(positions)[:, :, None, :]
        mask = combine_masks(
            None if key_mask is None else key_mask[:, :, None, :],
            None if allowed is None else allowed(i, j, *extras),
            None if inputs.mask_fn is None else inputs.mask_fn(i, j),
        )
        return Tile(query, key, value, *near, mask, None if bias is None else bias(i, j, *extras))

    distances = None
    if is_ordered:
        # A chunk that holds nothing but padding is in order too: its distances are looked up.
        query_positions = first_positions(query_positions, count * chunk)
        step = query_positions.step
        lowest = query_positions.start - key_positions.start - (num_keys - 1) * step
        distances = PositionRange(lowest, count * chunk + num_keys - 1, step)
    i = positions_by_head(query_positions)[..., None]
    output, log_weights = attend_tiles(
        inputs,
        cut,
        [cut_queries(x) for x in (inputs.query, i, *extras)],
        keys=(inputs.key, inputs.value),
        visible=seen,
        distances=distances,
        log_weight=log_weight,
    )
    return join(output), join(log_weights) if log_weight else None


def _num_groups(length, tile_sizes):
    if not isinstance(length, int):
        return tile_sizes.num_groups
    return max(1, min(tile_sizes.num_groups, length // tile_sizes.least_group))


def _chunk_length(inputs, length, num_keys):
    batch, num_heads = inputs.query.shape[:2]
    per_query = (batch or 1) * num_heads * num_keys
    most = inputs.tile_sizes.chunk_scores // per_query // 32 * 32
    if isinstance(per_query, int) and isinstance(length, int):
        return min(length, max(most, 32))
    return ops.minimum(ops.cast(ops.maximum(most, 32), "int32"), length)
