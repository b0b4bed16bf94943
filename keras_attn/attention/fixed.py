"""Attention to the last few keys of every block."""

from keras import ops

from keras_attn.attention.chunked import rows
from keras_attn.attention.positions import head_positions
from keras_attn.ops.shapes import ceil_div, pad, size, sizes, slice_axis


def summaries(operands, allowed, stride, summary, *, log_weight=False):
    """Attention to those keys that stand among the last `summary` of a block of `stride`.

    Time O(T S summary / stride) and memory O(T + S) per head.

    Args:
        operands: `AttentionInputs` of consecutive positions.
        allowed: function of query positions (..., T, 1) and key positions (..., 1, S).
        stride, summary: ints.
        log_weight: bool. Whether to give the log weight too, for `merge`.

    Returns:
        Output (B, N, T, Hv) and log weight (B, N, T, 1) or None.
    """
    num_keys = size(operands.key, 2)
    blocks = ceil_div(num_keys, stride)

    def gather(x):  # (B, N, S, H) -> (B, N, blocks * summary, H)
        x = pad(x, 0, blocks * stride - num_keys)
        x = ops.reshape(x, (*sizes(x)[:2], blocks, stride, x.shape[-1]))
        x = slice_axis(x, stride - summary, summary, axis=3)
        return ops.reshape(x, (*sizes(x)[:2], blocks * summary, x.shape[-1]))

    positions, real = operands.key_places()
    chosen = operands.replace(
        key=gather(operands.key),
        value=gather(operands.value),
        query_positions=head_positions(operands.query_positions),
        key_positions=gather(positions)[..., 0],
        real=gather(real)[..., 0],
    )
    earlier = num_keys - size(operands.query, 2)

    def visible(end):
        return ceil_div(earlier + end, stride) * summary

    return rows(chosen, allowed, visible=visible, log_weight=log_weight)
