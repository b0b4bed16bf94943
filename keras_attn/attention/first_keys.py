"""Attention to the first keys of a sequence."""

from keras_attn.attention.chunked import attend_chunked, chunked_tiles
from keras_attn.attention.inputs import first_positions
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
