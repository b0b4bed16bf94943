"""Positions of inputs in layers around attention."""

from keras import ops

from keras_attn.attention.inputs import PositionRange, positions_tensor, resolve_positions
from keras_attn.attention.masks import combine_masks, spread_attention_mask, spread_padding_mask
from keras_attn.ops.shapes import size


def slots_at_distance(
    x, cache, query_positions=None, key_positions=None, padding_mask=None, attention_mask=None
):
    """Return a function of a distance d that finds the slots d positions before new inputs.

    Args:
        x: (B, T, D), new inputs.
        cache: dict of `inputs`, slots (B, 1, M, D), and `index`, without those of `x`.
        query_positions, key_positions, padding_mask, attention_mask: as an attention layer of one
            head gets them.

    Returns:
        A function of a distance d that gives a boolean mask (B, T, S): True at the slot that holds
        position i - d. S = M + T slots, or S = M if the cache has an `index`.
    """
    cache = {"key": cache["inputs"], "index": cache["index"]}
    heads = x[:, None]
    queries = positions_tensor(
        resolve_positions(heads, heads, cache, query_positions, key_positions).query
    )
    grows = cache["index"] is None
    num_slots = size(cache["key"], 2) + (size(x, 1) if grows else 0)
    if key_positions is None:
        key_positions = ops.arange(num_slots, dtype="int32")
    batch, length, _ = x.shape
    static = num_slots if isinstance(num_slots, int) else None
    real = spread_padding_mask(padding_mask, batch, static)
    allowed = spread_attention_mask(attention_mask, batch, 1, length, static)
    allowed = combine_masks(real, None if allowed is None else allowed[:, 0])

    def find(distance):
        found = ops.equal(key_positions[..., None, :], queries[..., None] - distance)
        return combine_masks(found, allowed)

    return find


def block_positions(x, positions=None, cache=None):
    """Return the positions of a block's new inputs (B, T, D).

    They are the given ones, or those after the block's cache; None without either, for positions
    from 0 on.
    """
    if positions is not None:
        return positions_tensor(positions)
    if cache is None:
        return None
    cache = cache["attention"]
    cached = size(cache["key"], 2) if cache["index"] is None else cache["index"]
    return PositionRange(cached, size(x, 1)).tensor()
