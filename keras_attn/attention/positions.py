"""Positions of inputs in layers around attention."""

from keras import ops

from keras_attn.attention import inputs
from keras_attn.attention.inputs import (
    combine_masks,
    positions_tensor,
    spread_attention_mask,
    spread_padding_mask,
)
from keras_attn.attention.segments import segment_positions
from keras_attn.ops.shapes import size


def slots_at_distance(
    x, cache, query_positions=None, key_positions=None, padding_mask=None, attention_mask=None
):
    """Return a function of a distance d that gives a boolean mask (B, T, S) of slots.

    It is True at the slot that holds position i - d. S = M + T slots, or M if the cache has an
    `index`. `x` (B, T, D) are new inputs, and `cache` a dict of earlier `inputs`, slots
    (B, 1, M, D), and `index`; the others are as an attention layer of one head gets them.
    """
    cache = {"key": cache["inputs"], "index": cache["index"]}
    heads = ops.expand_dims(x, 1)
    positions = query_positions, key_positions
    resolved = inputs.resolve_positions(heads, heads, cache, positions)
    queries = positions_tensor(resolved.query)
    num_slots = size(cache["key"], 2) + (size(x, 1) if cache["index"] is None else 0)
    if key_positions is None:
        key_positions = ops.arange(num_slots, dtype="int32")
    batch, length, _ = x.shape
    static = num_slots if isinstance(num_slots, int) else None
    real = spread_padding_mask(padding_mask, batch, static)
    allowed = spread_attention_mask(attention_mask, batch, 1, length, static)
    allowed = None if allowed is None else allowed[:, 0]

    def find(distance):
        is_there = ops.equal(
            ops.expand_dims(key_positions, -2), ops.expand_dims(queries, -1) - distance
        )
        return combine_masks(is_there, real, allowed)

    return find


def block_positions(x, positions=None, cache=None, segment_ids=None):
    """Return the positions of a block's new inputs (B, T, D).

    They are the given ones, those in the documents of a packed row, or those after the block's
    cache; None, without any, for 0 .. T-1.
    """
    if positions is not None:
        return positions_tensor(positions)
    new = None
    if cache is not None:
        new = inputs.PositionRange(inputs.num_cached(cache["attention"]), size(x, 1)).tensor()
    if segment_ids is None:
        return new
    positions = segment_positions(segment_ids)
    return positions if new is None else ops.take(positions, new, axis=1)
