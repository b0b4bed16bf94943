"""Where the queries and the new keys of a call stand, before a cache is read."""

from keras import ops

from keras_attn.ops.checks import check_positions
from keras_attn.ops.cutting import size
from keras_attn.ops.masks import combine_masks, spread_attention_mask, spread_padding_mask
from keras_attn.ops.progression import Progression, positions_tensor


def positions_of_new(query, key, cache=None, query_positions=None, key_positions=None):
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
        query_positions = Progression(kept + new - steps, steps).tensor()
    else:
        query_positions = check_positions(query_positions, "query_positions", batch, length)
    if is_complete:
        return query_positions, None
    if key_positions is None:
        return query_positions, Progression(kept, new).tensor()
    num_keys = key.shape[2] if cache is None else None if grows else cache["key"].shape[2]
    key_positions = check_positions(key_positions, "key_positions", batch, num_keys)
    if cache is not None:
        key_positions = ops.take(key_positions, Progression(kept, new).tensor(), axis=-1)
    return query_positions, key_positions


def seen_at(
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
    places, _ = positions_of_new(x[:, None], x[:, None], cache, query_positions, key_positions)
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


def places_of_new(x, places=None, cache=None):
    """Positions of a block's new inputs (B, T, D): as given, or after those in the block's cache.

    None, without either, stands for those from 0 on.
    """
    if places is not None:
        return positions_tensor(places)
    if cache is None:
        return None
    cache = cache["attention"]
    kept = size(cache["key"], 2) if cache["index"] is None else cache["index"]
    return Progression(kept, size(x, 1)).tensor()
