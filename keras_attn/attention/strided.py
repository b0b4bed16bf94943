"""Attention within columns: to keys whose distance is a multiple of a stride."""

from keras import ops

from keras_attn.attention.block_local import attend_block_local
from keras_attn.ops.shapes import ceil_div, pad, size, sizes, slice_axis


def attend_strided(inputs, stride, *, log_weight=False):
    """Compute causal attention of each query to every `stride`-th key up to it.

    The sequence is written in rows of `stride`, and each column is a sequence of its own. Time
    O(T S / stride) and memory O(T + S) per head.

    Args:
        inputs: `AttentionInputs` of consecutive positions, the queries being the last T of S.
        stride: int.
        log_weight: bool. True to return the log weight too, for `merge_by_logsumexp`.

    Returns:
        Output (B, N, T, Hv) and log weight (B, N, T, 1) or None.
    """
    length, num_keys = size(inputs.query, 2), size(inputs.key, 2)
    rows = ceil_div(num_keys, stride)
    first = num_keys - length

    def fold(x, front=0):  # (B, N, T, H) -> (B, N, columns * rows, H)
        x = pad(x, front, rows * stride - num_keys)
        x = ops.reshape(x, (*sizes(x)[:2], rows, stride, x.shape[-1]))
        return ops.reshape(ops.swapaxes(x, 2, 3), (*sizes(x)[:2], stride * rows, x.shape[-1]))

    def unfold(x):
        x = ops.reshape(x, (*sizes(x)[:2], stride, rows, x.shape[-1]))
        x = ops.reshape(ops.swapaxes(x, 2, 3), (*sizes(x)[:2], rows * stride, x.shape[-1]))
        return slice_axis(x, first, length, axis=2)

    positions = fold(inputs.positions_of_keys())[..., 0]
    folded = inputs.replace(
        query=fold(inputs.query, first),
        key=fold(inputs.key),
        value=fold(inputs.value),
        query_positions=positions,
        key_positions=positions,
        key_mask=fold(inputs.mask_of_keys())[..., 0],
    )
    output, log_weights = attend_block_local(
        folded, lambda i, j: j <= i, rows, repeats=True, spacing=stride, log_weight=log_weight
    )
    return unfold(output), unfold(log_weights) if log_weight else None
