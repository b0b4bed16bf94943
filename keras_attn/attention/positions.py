"""Positions at equal distances."""

import dataclasses

from keras import ops

from keras_attn.attention.masks import combine_masks, spread_attention_mask, spread_padding_mask
from keras_attn.ops.checks import check_positions
from keras_attn.ops.shapes import size, slice_axis


@dataclasses.dataclass(frozen=True)
class PositionRange:
    """The positions start, start + step, ... in their order; as a tensor, by `tensor`.

    A score or a plan that is given one knows, which a tensor cannot tell while a graph is built,
    that neighbours are neighbours. `start` and `length` may be tensors.
    """

    start: object
    length: object
    step: int = 1

    @property
    def shape(self):
        return (self.length if isinstance(self.length, int) else None,)

    def tensor(self):
        return ops.arange(self.length, dtype="int32") * self.step + self.start


def last_of(length, num_keys):
    """Where queries and keys stand unless told otherwise: the queries are the last of the keys."""
    return PositionRange(num_keys - length, length), PositionRange(0, num_keys)


def positions_tensor(positions):
    """An int32 tensor of a `PositionRange` or of anything that makes a tensor."""
    if isinstance(positions, PositionRange):
        return positions.tensor()
    return ops.cast(positions, "int32")


def first_of(places, length):
    """The first of a `PositionRange`, or of a tensor (B, N, S) or None, which stands for all."""
    if isinstance(places, PositionRange):
        return dataclasses.replace(places, length=length)
    return None if places is None else slice_axis(places, 0, length, axis=len(places.shape) - 1)


def head_positions(positions):
    """Positions (T,), (B, T) or (B or 1, N or 1, T) of any kind as int32 of the last shape."""
    if isinstance(positions, PositionRange):
        return positions.tensor()[None, None]
    positions = ops.cast(positions, "int32")
    rank = len(positions.shape)
    return positions[None, None] if rank == 1 else positions[:, None] if rank == 2 else positions


def resolve_positions(query, key, cache=None, query_positions=None, key_positions=None):
    """Positions (T,) or (B, T) of the queries, and of the keys that are not in the cache yet.

    Unless they are given, new keys follow those in the cache, and the queries are the last of all.

    Args:
        query: (B, N, T, H). key: (B, N, S, H), new ones; None if there are none.
        cache: as the attention layer gets it.
        query_positions, key_positions: as the attention layer gets them: with a cache, the latter
            are those of all its slots.

    Returns:
        The two, int32. That of keys is None where the cache is complete.
    """
    is_complete = cache is not None and "index" not in cache
    grows = cache is not None and cache.get("index") is None
    kept = 0 if cache is None else size(cache["key"], 2) if grows else cache["index"]
    new = 0 if is_complete else size(key, 2)
    batch, _, length, _ = query.shape
    if query_positions is None:
        steps = size(query, 2)
        query_positions = PositionRange(kept + new - steps, steps).tensor()
    else:
        query_positions = check_positions(query_positions, "query_positions", batch, length)
    if is_complete:
        return query_positions, None
    if key_positions is None:
        return query_positions, PositionRange(kept, new).tensor()
    num_keys = key.shape[2] if cache is None else None if grows else cache["key"].shape[2]
    key_positions = check_positions(key_positions, "key_positions", batch, num_keys)
    if cache is not None:
        key_positions = ops.take(key_positions, PositionRange(kept, new).tensor(), axis=-1)
    return query_positions, key_positions


def slots_at_distance(
    x, cache, query_positions=None, key_positions=None, padding_mask=None, attention_mask=None
):
    """Where what stands so many positions before each of the new inputs is kept.

    Args:
        x: (B, T, D), new inputs.
        cache: dict of `inputs`, slots (B, 1, M, D), and `index`, without those of `x`.
        query_positions, key_positions, padding_mask, attention_mask: as an attention layer of one
            head gets them.

    Returns:
        A function of a distance that gives a bool (B, T, S), True at the slot of that position: of
        S = M + T slots, or of S = M where `index` says which of them are free.
    """
    cache = {"key": cache["inputs"], "index": cache["index"]}
    places, _ = resolve_positions(x[:, None], x[:, None], cache, query_positions, key_positions)
    grows = cache["index"] is None
    num_slots = size(cache["key"], 2) + (size(x, 1) if grows else 0)
    if key_positions is None:
        key_positions = ops.arange(num_slots, dtype="int32")
    batch, length, _ = x.shape
    static = num_slots if isinstance(num_slots, int) else None
    real = spread_padding_mask(padding_mask, batch, static)
    allowed = spread_attention_mask(attention_mask, batch, 1, length, static)
    allowed = combine_masks(real, None if allowed is None else allowed[:, 0])

    def seen(distance):
        found = ops.equal(key_positions[..., None, :], places[..., None] - distance)
        return combine_masks(found, allowed)

    return seen


def block_positions(x, places=None, cache=None):
    """Positions of a block's new inputs (B, T, D): as given, or after those in the block's cache.

    None, without either, stands for those from 0 on.
    """
    if places is not None:
        return positions_tensor(places)
    if cache is None:
        return None
    cache = cache["attention"]
    kept = size(cache["key"], 2) if cache["index"] is None else cache["index"]
    return PositionRange(kept, size(x, 1)).tensor()
