"""Attention within columns: to keys whose distance is a multiple of a stride."""

from keras import ops

from keras_attn.attention.block_local import attend_block_local, block_local_tiles
from keras_attn.attention.tiles import resize
from keras_attn.ops.shapes import ceil_div, greater, pad, size, sizes, slice_axis


def strided_tiles(inputs, stride, blocks=None):
    """Return the `TileCount`s of `attend_strided`."""
    rows = ceil_div(inputs.key.shape[2], stride)
    folded = resize(inputs, rows * stride, rows * stride)
    return block_local_tiles(folded, *(blocks or (rows,)))


def attend_strided(inputs, stride, allowed=None, blocks=None, *, log_weight=False):
    """Compute attention of each query to keys at multiples of `stride` from it.

    The sequence is written in rows of `stride`, and each column is a sequence of its own; the T
    queries are the last of S positions. Time O(T S / stride), with `blocks` O(T) times their
    length, and memory O(T + S) per head.
    Return the output (B, N, T, Hv) and, with `log_weight`, the log weight (B, N, T, 1) or None.

    Args:
        inputs: `AttentionInputs`.
        allowed: function of query positions (..., T, 1) and key positions (..., 1, S), which allows
            only pairs of a column; None for causal attention to the whole column.
        blocks: length of a block of a column, and the numbers of blocks before and after it that
            `allowed` reaches; None with the default of `allowed`.
    """
    length, num_keys = size(inputs.query, 2), size(inputs.key, 2)
    rows = greater(ceil_div(num_keys, stride), 1)
    first = num_keys - length

    def transpose(x, rows, columns):  # (B, N, rows * columns, H) -> (B, N, columns * rows, H)
        x = ops.reshape(x, (*sizes(x)[:2], rows, columns, x.shape[-1]))
        return ops.reshape(ops.swapaxes(x, 2, 3), (*sizes(x)[:2], columns * rows, x.shape[-1]))

    def fold(x, front=0):
        return transpose(pad(x, front, rows * stride - num_keys), rows, stride)

    def unfold(x):
        return slice_axis(transpose(x, stride, rows), first, length, axis=2)

    positions = fold(inputs.positions_of_keys())[..., 0]
    folded = inputs.replace(
        query=fold(inputs.query, first),
        key=fold(inputs.key),
        value=fold(inputs.value),
        query_positions=positions,
        key_positions=positions,
        key_mask=fold(inputs.mask_of_keys())[..., 0],
        query_segments=tuple(fold(x, first) for x in inputs.query_segments),
    )
    options = {"spacing": stride, "log_weight": log_weight}
    if allowed is None:
        found = attend_block_local(folded, lambda i, j: j <= i, rows, repeats=True, **options)
    else:  # a block may end in the next column
        found = attend_block_local(folded, allowed, *blocks, **options)
    return tuple(None if x is None else unfold(x) for x in found)
