"""Caches of keys and values: writing new ones, and reading those that a query may attend to.

A cache is a dict. A complete one, without "index", is only read. To one whose "index" is None new
keys are appended. Another holds M slots, of which "index" are filled; it is a ring if a pattern
keeps M keys only. A cache of sums, for linear attention, holds "sums" in the place of keys.
"""

import dataclasses

from keras import ops

from keras_attn.attention.inputs import PositionRange, keras_mask
from keras_attn.backend.loop_invariants import loop_scope
from keras_attn.backend.operations import is_symbolic
from keras_attn.ops.checks import check_shape
from keras_attn.ops.shapes import greater, join_heads, size, sizes, slice_axis


def ring_positions(num_slots, end, sinks=0):
    """Return the position in each slot of a ring after `end` keys; below 0 in an empty slot.

    Before the ring wraps, a slot holds the position of its own number. The first `sinks` slots
    always do.
    """
    slots = ops.arange(num_slots, dtype="int32")
    window = greater(num_slots - sinks, 1) if sinks else num_slots
    positions = end - 1 - (end - 1 - slots) % window
    if not sinks:
        return positions
    positions = ops.where(slots < sinks, slots, positions)
    is_filled = ops.logical_and(slots < end, positions >= slots)
    return ops.where(is_filled, positions, -1)


def _slots_of(positions, num_slots, sinks):
    """Return the slot of each position in a ring."""
    if not sinks:
        return positions % num_slots
    later = sinks + (positions - sinks) % greater(num_slots - sinks, 1)
    return ops.where(positions < sinks, positions, later)


def write_slots(buffer, update, index, many_slots=256, sinks=0):
    """Write `update` (B, N, T, H) into slots index .. index + T - 1, mod M, of a buffer.

    The first `sinks` slots are written once, and the others are a ring of M - sinks slots.

    Keras's slice update is an XLA op on TensorFlow, which TensorFlow Serving and ONNX do not run.

    Args:
        buffer: (B, N, M, H). update: (B, N, T, H). index: int32 scalar, the same for all rows.
        many_slots: int. From this number of slots on, writing one row is faster than rebuilding all
            slots with `where`; XLA then writes into the loop's own buffer.
        sinks: int. Number of first slots that the ring never overwrites.
    """
    shape = buffer.shape[1:]
    is_small = shape[1] is not None and shape[1] < many_slots
    rebuilds = is_small or (sinks and update.shape[2] != 1)
    write = _rebuild_slots if rebuilds else _scatter_slots
    if loop_scope.values is None or None in (*shape, update.shape[2]):
        return write(buffer, update, index, sinks)
    # The loop of a decoder holds (B * N, M, H), which XLA changes in place if it is written so.
    return ops.reshape(write(join_heads(buffer), join_heads(update), index, sinks), (-1, *shape))


def _scatter_slots(buffer, update, index, sinks):
    """Write slots of a buffer (..., M, H) row by row."""
    num_slots, length = size(buffer, -2), size(update, -2)
    if not isinstance(length, int) or not isinstance(num_slots, int) or length > num_slots:
        written = ops.minimum(length, num_slots)  # a slot is written once
        update = slice_axis(update, length - written, written, axis=-2)
        index = index + length - written
        length = written
    grid = *sizes(buffer)[:-2], length
    axes = [ops.arange(n, dtype="int32") for n in grid]
    axes[-1] = _slots_of(index + axes[-1], num_slots, sinks)
    axes = [ops.reshape(x, (-1, *[1] * (len(grid) - n))) for n, x in enumerate(axes, 1)]
    indices = [ops.reshape(ops.broadcast_to(x, grid), (-1,)) for x in axes]
    update = ops.reshape(update, (-1, update.shape[-1]))
    return ops.scatter_update(buffer, ops.stack(indices, axis=-1), update)


def _rebuild_slots(buffer, update, index, sinks):
    """Write slots of a buffer (..., M, H) by choosing between old and new in each slot."""
    num_slots = buffer.shape[-2] or size(buffer, -2)
    if update.shape[-2] == 1:
        is_new = ops.arange(num_slots, dtype="int32") == _slots_of(index, num_slots, sinks)
        return ops.where(ops.expand_dims(is_new, 1), update, buffer)
    length = size(update, -2)
    offset = ring_positions(num_slots, index + length, sinks) - index  # below 0: written before
    spread = ops.take(update, ops.clip(offset, 0, length - 1), axis=-2)  # (..., M, H)
    return ops.where(ops.expand_dims(offset >= 0, 1), spread, buffer)


def add_slots(buffer, update, index, sinks=0):
    """Append `update` (B, N, T, H) to `buffer` (B, N, M, H), or write it from slot `index` on."""
    if index is None:
        return ops.concatenate([buffer, update], axis=2)
    return write_slots(buffer, update, index, sinks=sinks)


def check_cache(cache, num_heads, key_dim, value_dim):
    """Refuse a cache that does not fit a layer of these sizes."""
    if "sums" in cache:
        return
    for name, width in (("key", key_dim), ("value", value_dim)):
        if name not in cache:
            raise ValueError(
                "`cache` must come from `KVCache.initial`, from `context_cache` or from an "
                f"earlier call. Received: a cache with {sorted(cache)}."
            )
        check_shape(cache[name], f"cache['{name}']", (None, num_heads, None, width))


def check_cache_arguments(call, pattern, score):
    """Refuse the score, positions and mask that a cache of sums or a ring cannot take.

    Return the `AttentionCall` without masks that are of the new keys alone: `Layer.__call__` fills
    in Keras's masks of the new values, but a cache needs those of all slots.
    """
    cache, key_positions = call.cache, call.key_positions
    if "sums" in cache:
        if not score.is_linear or pattern.simple_rule is None:
            raise ValueError(
                "A cache of sums needs the score and the pattern that it was made for. "
                f"Received: score={score!r}, pattern={pattern!r}."
            )
        if key_positions is not None or call.masks["attention_mask"] is not None:
            raise ValueError(
                "A cache of sums keeps no single keys: `key_positions` and `attention_mask` need "
                "one that does, `KVCache(max_length, whole=True)`. "
                f"Received: a cache with {sorted(cache)} and one of these arguments."
            )
    if key_positions is not None and _may_be_ring(cache, pattern):
        shape, num_slots = ops.convert_to_tensor(key_positions).shape, cache["key"].shape[2]
        if isinstance(shape[-1], int) and num_slots is not None and shape[-1] != num_slots:
            raise ValueError(
                "`key_positions` must be those of the cache's slots; a cache that keeps every key "
                "is `KVCache(max_length, whole=True)`. Received: key_positions of shape "
                f"{tuple(shape)}, a cache of the last {num_slots} keys."
            )
    masks = dict(call.masks)
    for name, x in (("value_mask", call.value), ("key_mask", call.key)):
        if masks[name] is not None and masks[name] is keras_mask(x):
            masks[name] = None
    return call.replace(masks=masks)


def extend_cache(cache, key, value, is_ring=False, sinks=0):
    """Return `cache` with per-head `key` and `value` (B, N, T, H) in its next T slots.

    If `index` is None, slots are added. A ring continues after the last slot at the first one that
    is no sink.
    """
    index = cache["index"]
    if index is not None:
        length, num_slots = key.shape[2], cache["key"].shape[2]
        check_shape(cache["key"], "cache['key']", (key.shape[0], None, None, None))
        if not is_ring and None not in (length, num_slots):
            num_filled = 0 if is_symbolic(index) else int(index)
            if num_filled + length > num_slots:
                raise ValueError(
                    "`cache` must have a slot for each new key. "
                    f"Received: {num_slots} slots, {num_filled} keys in them, {length} new keys."
                )
    return {
        "key": add_slots(cache["key"], key, index, sinks),
        "value": add_slots(cache["value"], value, index, sinks),
        "index": None if index is None else index + size(key, 2),
    }


@dataclasses.dataclass(frozen=True)
class CacheView:
    """The part of a cache that a call reads."""

    key: object  # (B, N, S, H)
    value: object  # (B, N, S, Hv)
    positions: object = None  # of the keys: a `PositionRange`, or int32 (S,); None for 0 .. S-1
    slot_mask: object = None  # bool (S,), True where there is such a key; None if all are there
    columns: object = None  # int32 (S,), of the keys in a mask over all; None for all in order
    num_slots: int | None = None  # number of such columns, if known
    sums: object = None  # (B, N, M, Hv + 1), in place of the keys before these

    def key_positions(self):
        """Return the positions of the keys."""
        return PositionRange(0, size(self.key, 2)) if self.positions is None else self.positions

    def select_columns(self, mask, name):
        """Return the columns of a mask (..., positions) for the keys that are read."""
        if mask is None or self.columns is None:
            return mask
        mask = ops.convert_to_tensor(mask)
        if mask.shape[-1] == 1:
            return mask
        if isinstance(self.num_slots, int):
            check_shape(mask, name, (*mask.shape[:-1], self.num_slots))
        return ops.take(mask, self.columns, axis=-1)

    def scatter_scores(self, scores):
        """Return scores (B, N, T, S) of the keys that are read as scores of all slots."""
        if self.sums is not None:
            raise ValueError(
                "A cache of sums has no scores; one with every key is `KVCache(max_length, "
                "whole=True)`. Received: return_attention_scores=True."
            )
        if self.num_slots is None:
            return scores
        return ops.matmul(scores, ops.one_hot(self.columns, self.num_slots, dtype=scores.dtype))


def read_cache(cache, key, value, pattern, caller_positions=(None, None)):
    """Return a cache extended by new keys and values, and a `CacheView` of the keys in reach.

    A cache of as many slots as the pattern's `kept_keys` is a ring: position p is in slot p mod M,
    or with g sinks in slot g + (p - g) mod (M - g), and in slot p if p < g. One of sums has
    no slots. Others hold position p in slot p. For a single query, only the keys that the pattern
    names are read.

    Args:
        cache: dict from `KVCache.initial`, `context_cache` or an earlier call.
        key, value: (B, N, T, H), new; None with a complete cache.
        caller_positions: of queries and of keys, as the attention layer got them; with the latter,
            the positions of the slots, all are read.
    """
    query_positions, key_positions = caller_positions
    if "sums" in cache:
        return _view_sums(cache, key, value)
    if "index" not in cache:
        return cache, _view_all(cache)
    is_single = key.shape[2] == 1
    is_ring = key_positions is None and _may_be_ring(cache, pattern)
    sinks = pattern.kept_keys.sinks if is_ring else 0
    new = extend_cache(cache, key, value, is_ring, sinks)
    if is_ring:  # the first of several new queries may attend to keys that the last overwrite
        return new, _view_ring(sinks, new) if is_single else _view_ring(sinks, cache, key, value)
    view = None
    if is_single and key_positions is None and pattern.simple_rule is None:
        view = _view_decode_keys(new, pattern, query_positions)
    return new, view or _view_all(new)


def _view_sums(cache, key, value):
    """Return a cache of sums with its next index, and a view of the sums and the new keys."""
    start, length = cache["index"], size(key, 2)
    columns = start + ops.arange(length, dtype="int32")
    view = CacheView(key, value, PositionRange(start, length), columns=columns, sums=cache["sums"])
    return {**cache, "index": start + length}, view


def _may_be_ring(cache, pattern):
    ring_size = None if cache.get("index") is None else pattern.kept_keys.size
    return ring_size is not None and cache["key"].shape[2] in (None, ring_size)


def _view_all(cache):
    """View every slot, in the order of positions."""
    filled, slot_mask = cache.get("index"), None
    if filled is not None:
        slot_mask = ops.arange(size(cache["key"], 2), dtype="int32") < filled
    return CacheView(cache["key"], cache["value"], slot_mask=slot_mask)


def _view_decode_keys(cache, pattern, query_positions):
    """View the keys that one query may attend to, gathered; None where that saves nothing."""
    num_slots = size(cache["key"], 2)
    end = num_slots if cache["index"] is None else cache["index"]
    position = ops.convert_to_tensor(end - 1, "int32")
    if query_positions is not None:
        query_positions = ops.convert_to_tensor(query_positions)
        if len(query_positions.shape) > 1:  # each row its own
            return None
        position = ops.cast(query_positions, "int32")[0]
    kept = pattern.kept_keys
    positions = None if kept.positions is None else kept.positions(position, num_slots)
    count = None if positions is None else positions.shape[0]
    saves_none = isinstance(num_slots, int) and count is not None and count >= num_slots
    if positions is None or saves_none:
        return None
    slot_mask = ops.logical_and(positions >= 0, positions < end)
    columns = ops.where(slot_mask, positions, 0)
    return CacheView(
        key=ops.take(cache["key"], columns, axis=2),
        value=ops.take(cache["value"], columns, axis=2),
        # A score may be undefined at a distance that the pattern forbids.
        positions=ops.where(slot_mask, positions, position),
        slot_mask=slot_mask,
        columns=columns,
        num_slots=num_slots,
    )


def _view_ring(sinks, cache, *new):
    """View a ring, and after it new keys and values that it does not hold yet."""
    key, value, index = cache["key"], cache["value"], cache["index"]
    positions = ring_positions(size(cache["key"], 2), index, sinks)
    if new:
        key, value = (ops.concatenate(x, axis=2) for x in zip((key, value), new, strict=True))
        new_positions = index + ops.arange(size(new[0], 2), dtype="int32")
        positions = ops.concatenate([positions, new_positions])
    columns = ops.maximum(positions, 0)
    return CacheView(key, value, positions, slot_mask=positions >= 0, columns=columns)
