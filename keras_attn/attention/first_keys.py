"""Attention to the first keys of a sequence, and of its first queries."""

from keras import ops

from keras_attn.attention.chunked import attend_chunked, chunked_tiles
from keras_attn.attention.inputs import first_positions, positions_by_head
from keras_attn.attention.tiles import resize
from keras_attn.ops.shapes import lesser, size, slice_axis


def first_keys_tiles(inputs, count):
    """Return the `TileCount`s of `attend_first_keys`."""
    return chunked_tiles(resize(inputs, num_keys=min(count, inputs.key.shape[2])))


def attend_first_keys(inputs, count, allowed, *, log_weight=False):
    """Compute attention of all queries to the first `count` keys, at least one.

    Time and memory O(T count) per head. `allowed` is a function of query positions (..., T, 1) and
    key positions (..., 1, S).
    Return the output (B, N, T, Hv) and, with `log_weight`, the log weight (B, N, T, 1) or None.
    """
    count = lesser(count, size(inputs.key, 2))
    first = inputs.replace(
        key=slice_axis(inputs.key, 0, count, axis=2),
        value=slice_axis(inputs.value, 0, count, axis=2),
        key_positions=first_positions(inputs.key_positions, count),
        key_mask=first_positions(inputs.key_mask, count),
    )
    return attend_chunked(first, allowed, log_weight=log_weight)


def replace_first_queries(x, rows, positions, count):
    """Replace rows of x (B, N, T, H), whose positions are below `count`, by other rows.

    `rows` (B, N, t, H) are of the first t queries, and `positions` are theirs.
    """
    is_first = positions_by_head(positions)[..., None] < count
    length = size(rows, 2)
    rows = ops.where(is_first, rows, slice_axis(x, 0, length, axis=2))
    rest = slice_axis(x, length, size(x, 2) - length, axis=2)
    return ops.concatenate([rows, rest], axis=2)
