"""Keys and values kept between calls, and writing new ones."""

from keras import ops

from keras_attn.ops.checks import check_shape
from keras_attn.ops.cutting import part_of, size, sizes

# From so many slots on, row after row is written sooner than all slots are chosen anew; XLA then
# writes into the loop's own buffer.
MANY_SLOTS = 256


def ring_positions(num_slots, end):
    """The position in each slot of a ring once `end` were written; below 0 in an empty slot.

    Without a turn, that is the slot's own number.
    """
    slots = ops.arange(num_slots, dtype="int32")
    return end - 1 - (end - 1 - slots) % num_slots


def write_slots(buffer, update, index):
    """`buffer` (B, N, M, H) with `update` (B, N, T, H) in its slots index .. index + T - 1, mod M.

    Not written with a slice update, because Keras's is an XLA op on TensorFlow even outside XLA,
    which TensorFlow Serving and ONNX converters do not run. `index` is an int32 scalar, the same
    for all rows.
    """
    num_slots, length = size(buffer, 2), size(update, 2)
    if isinstance(num_slots, int) and num_slots < MANY_SLOTS:
        return _write_all_slots(buffer, update, index)
    if not isinstance(length, int) or not isinstance(num_slots, int) or length > num_slots:
        kept = ops.minimum(length, num_slots)  # a slot is written once
        update, index = part_of(update, length - kept, kept, axis=2), index + length - kept
        length = kept
    batch, num_heads = sizes(buffer)[:2]
    slots = (index + ops.arange(length, dtype="int32")) % num_slots
    places = (
        ops.arange(batch, dtype="int32")[:, None, None],
        ops.arange(num_heads, dtype="int32")[:, None],
        slots,
    )
    places = [ops.reshape(ops.broadcast_to(x, (batch, num_heads, length)), (-1,)) for x in places]
    rows = ops.reshape(update, (-1, update.shape[-1]))
    return ops.scatter_update(buffer, ops.stack(places, axis=-1), rows)


def _write_all_slots(buffer, update, index):
    """The same, by choosing between old and new in each slot."""
    num_slots, length = buffer.shape[2], size(update, 2)
    if isinstance(length, int) and length == 1:
        slots = ops.arange(num_slots, dtype="int32")
        return ops.where((slots == index % num_slots)[:, None], update, buffer)  # (B, N, M, H)
    offset = ring_positions(num_slots, index + length) - index  # below 0: written before
    spread = ops.take(update, ops.clip(offset, 0, length - 1), axis=2)  # (B, N, M, H)
    return ops.where((offset >= 0)[:, None], spread, buffer)


def add_slots(buffer, update, index):
    """`buffer` (B, N, M, H) and `update` (B, N, T, H): behind it, or in its slots from `index` on."""
    if index is None:
        return ops.concatenate([buffer, update], axis=2)
    return write_slots(buffer, update, index)


def check_cache(cache, num_heads, key_dim, value_dim):
    """Refuses a cache that is not one of a layer of these sizes."""
    for name, width in (("key", key_dim), ("value", value_dim)):
        if name not in cache:
            raise ValueError(
                "`cache` must come from `KVCache.initial`, from `context_cache` or from an "
                f"earlier call. Received: a cache with {sorted(cache)}."
            )
        check_shape(cache[name], f"cache['{name}']", (None, num_heads, None, width))


def extend_cache(cache, key, value, is_ring=False):
    """`cache` with per-head `key` and `value` (B, N, T, H) in its next T slots.

    With an `index` of None every slot is filled, and new ones are added. A ring starts again at
    its first slot, so that it holds the last keys.
    """
    index = cache["index"]
    if index is not None:
        batch, _, length, _ = key.shape
        check_shape(cache["key"], "cache['key']", (batch, None, None, None))
        num_slots = cache["key"].shape[2]
        if not is_ring and None not in (length, num_slots) and length > num_slots:
            raise ValueError(
                "`cache` must have a slot for each new key. "
                f"Received: {num_slots} slots, {length} new keys."
            )
    return {
        "key": add_slots(cache["key"], key, index),
        "value": add_slots(cache["value"], value, index),
        "index": None if index is None else index + ops.shape(key)[2],
    }
