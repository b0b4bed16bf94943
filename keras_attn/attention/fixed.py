"""Attention to the last few keys of every block."""

from keras import ops

from keras_attn.attention.chunked import attend_chunked, chunked_tiles
from keras_attn.attention.inputs import positions_by_head
from keras_attn.attention.tiles import resize
from keras_attn.ops.shapes import ceil_div, lesser, pad, size, sizes, slice_axis
from keras_attn.ops.sorting import permute, row_starts, sort_order


def fixed_tiles(inputs, stride, summary):
    """Return the `TileCount`s of `attend_fixed`."""
    num_keys = inputs.key.shape[2]
    earlier = num_keys - inputs.query.shape[2]
    chosen = resize(inputs, num_keys=ceil_div(num_keys, stride) * summary)
    found = chunked_tiles(chosen, lambda end: ceil_div(earlier + end, stride) * summary)
    return [tiles._replace(num_distances=None) for tiles in found]


def attend_fixed(inputs, allowed, stride, summary, *, log_weight=False):
    """Compute attention to the keys among the last `summary` of each block of `stride`.

    Time O(T S summary / stride) and memory O(T + S) per head. `inputs` have consecutive positions;
    `allowed` is a function of query positions (..., T, 1) and key positions (..., 1, S).
    Return the output (B, N, T, Hv) and, with `log_weight`, the log weight (B, N, T, 1) or None.
    """
    num_keys = size(inputs.key, 2)
    blocks = ceil_div(num_keys, stride)
    earlier = num_keys - size(inputs.query, 2)

    def visible(end):
        return ceil_div(earlier + end, stride) * summary

    if inputs.query_segments:
        chosen, visible = _summaries_of_documents(inputs, stride, summary, visible)
        return attend_chunked(chosen, allowed, visible=visible, log_weight=log_weight)

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
    return attend_chunked(chosen, allowed, visible=visible, log_weight=log_weight)


def _summaries_of_documents(inputs, stride, summary, visible):
    """Return inputs with the summary keys of packed rows, and how many the first n queries reach.

    Summary keys come first, in their order, then some others, which are masked. The documents of a
    row have no more summary keys than one document of its length.
    """
    num_keys = size(inputs.key, 2)
    count = lesser(visible(size(inputs.query, 2)), num_keys)
    documents = inputs.mask_of_keys()  # (B, 1, S, 1)
    positions = inputs.positions_of_keys() - documents + 1
    is_other = ops.logical_or(documents == 0, positions % stride < stride - summary)[..., 0]
    order, inverse = sort_order(ops.cast(is_other, "int32"))
    shape = sizes(inputs.key)[:3]
    rows = [ops.broadcast_to(x, shape) + row_starts(inputs.key) for x in (order, inverse)]
    documents = ops.take_along_axis(ops.where(is_other, 0, documents[..., 0]), order, axis=2)
    chosen = inputs.replace(
        key=slice_axis(permute(inputs.key, *rows), 0, count, axis=2),
        value=slice_axis(permute(inputs.value, *rows), 0, count, axis=2),
        query_positions=positions_by_head(inputs.query_positions),
        key_positions=slice_axis(order, 0, count, axis=2),
        key_mask=slice_axis(documents, 0, count, axis=2),
    )
    return chosen, lambda end: lesser(visible(end), num_keys)
