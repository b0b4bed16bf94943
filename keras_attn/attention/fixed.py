"""Attention to the last few keys of every block."""

from keras import ops

from keras_attn.attention.chunked import attend_chunked
from keras_attn.attention.inputs import positions_by_head
from keras_attn.ops.shapes import ceil_div, pad, size, sizes, slice_axis


def attend_fixed(inputs, allowed, stride, summary, *, log_weight=False):
    """Compute attention to the keys among the last `summary` of each block of `stride`.

    Time O(T S summary / stride) and memory O(T + S) per head. `inputs` have consecutive positions;
    `allowed` is a function of query positions (..., T, 1) and key positions (..., 1, S).
    Return the output (B, N, T, Hv) and, with `log_weight`, the log weight (B, N, T, 1) or None.
    """
    num_keys = size(inputs.key, 2)
    blocks = ceil_div(num_keys, stride)

    def gather(x):  # (B, N, S, H) -> (B, N, blocks * summary, H)
        x = pad(x, 0, blocks * stride - num_keys)
        x = ops.reshape(x, (*sizes(x)[:2], blocks, stride, x.shape[-1]))
        x = slice_axis(x, stride - summary, summary, axis=3)
        return ops.reshape(x, (*sizes(x)[:2], blocks * summary, x.shape[-1]))

    chosen = inputs.replace(
        key=gather(inputs.key),
        value=gather(inputs.value),
        query_positions=positions_by_head(inputs.query_positions),
        key_positions=gather(inputs.positions_of_keys())[..., 0],
        key_mask=gather(inputs.mask_of_keys())[..., 0],
    )
    earlier = num_keys - size(inputs.query, 2)

    def visible(end):
        return ceil_div(earlier + end, stride) * summary

    return attend_chunked(chosen, allowed, visible=visible, log_weight=log_weight)
