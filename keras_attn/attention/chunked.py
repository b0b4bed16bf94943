"""Attention of some queries at a time to all keys."""

from keras import ops

from keras_attn.attention.inputs import (
    PositionRange,
    combine_masks,
    distances_between,
    first_positions,
    positions_by_head,
)
from keras_attn.attention.segments import pairs_in_documents
from keras_attn.attention.tiles import Tile, TileCount, attend_tiles
from keras_attn.ops.shapes import ceil_div, greater, lesser, pad, size, sizes, slice_axis


def _cut_into_chunks(inputs, visible):
    """Return how queries are cut: groups, chunks of each, queries of a chunk, keys of each group.

    The keys are [None], for all of them, if there is one group.
    """
    _, num_heads, length, _ = sizes(inputs.query)
    num_keys = size(inputs.key, 2)
    tile_sizes, groups = inputs.tile_sizes, 1
    if visible is not None:
        groups = tile_sizes.num_groups
        if isinstance(length, int):
            groups = max(1, min(groups, length // tile_sizes.least_group))
    group = ceil_div(greater(length, 1), groups)
    scores_of_query = (inputs.query.shape[0] or 1) * num_heads * greater(num_keys, 1)
    most = tile_sizes.chunk_scores // scores_of_query // 32 * 32
    in_group = ceil_div(group, lesser(group, greater(most, 32)))
    chunk = ceil_div(group, in_group)
    seen = [None]
    if groups > 1:
        ends = [lesser((n + 1) * in_group * chunk, length) for n in range(groups)]
        seen = [greater(visible(end), 1) for end in ends]
    return groups, in_group, chunk, seen


def chunked_tiles(inputs, visible=None):
    """Return the `TileCount`s of `attend_chunked`."""
    groups, in_group, chunk, seen = _cut_into_chunks(inputs, visible)
    batch, num_heads, num_keys, _ = inputs.key.shape
    distances = [groups * in_group * chunk + num_keys, *[0] * (groups - 1)]
    at_once, is_loop = batch * num_heads, groups * in_group > 1
    return [
        TileCount(in_group * at_once, at_once, chunk, keys or num_keys, is_loop, count)
        for keys, count in zip(seen, distances, strict=True)
    ]


def attend_chunked(inputs, allowed=None, *, visible=None, bias=None, extras=(), log_weight=False):
    """Compute exact attention to all keys, some queries at a time.

    Time O(T S), with `visible` little more than the visible pairs; memory O(T + S) per head.
    Return the output (B, N, T, Hv) and, with `log_weight`, the log weight (B, N, T, 1) or None.

    Args:
        inputs: `AttentionInputs`.
        allowed: function of query positions (..., T, 1), key positions (..., 1, S) and `extras`;
            None allows all.
        visible: function of n that returns the most keys that the first n queries reach; or None.
        bias: function of the same arguments as `allowed`, added to the logits.
        extras: tensors (B or 1, N or 1, T, .), cut like the queries.
    """
    batch, num_heads, length, _ = sizes(inputs.query)
    groups, in_group, chunk, seen = _cut_into_chunks(inputs, visible)
    count = groups * in_group
    query_positions, key_positions = inputs.query_positions, inputs.key_positions
    is_ordered = isinstance(query_positions, PositionRange)

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
        near = (
            PositionRange(i[0, 0, 0, 0], chunk, query_positions.step) if is_ordered else i[..., 0]
        )
        j = positions_by_head(positions)[:, :, None, :]
        real = None if key_mask is None else key_mask[:, :, None, :]
        if inputs.query_segments:
            *extras, document = extras
            i, j, real = pairs_in_documents(i, j, document, real)
        mask = combine_masks(
            real,
            None if allowed is None else allowed(i, j, *extras),
            None if inputs.mask_fn is None else inputs.mask_fn(i, j),
        )
        added = None if bias is None else bias(i, j, *extras)
        return Tile(query, key, value, near, positions, mask, added)

    if is_ordered:
        # A chunk that holds nothing but padding is in order too: its distances are looked up.
        query_positions = first_positions(query_positions, count * chunk)
    distances = distances_between(query_positions, key_positions)
    i = positions_by_head(query_positions)[..., None]
    tiles = [cut_queries(x) for x in (inputs.query, i, *extras, *inputs.query_segments)]
    keys = inputs.key, inputs.value
    return attend_tiles(inputs, cut, join, tiles, keys, seen, distances, log_weight)
