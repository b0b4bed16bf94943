"""Writing new keys and values into a buffer of fixed size."""

from keras import ops

from keras_attn.ops.checks import check_shape


def write_slots(buffer, update, index):
    """`buffer` (B, N, M, H) with `update` (B, N, T, H) in its slots index .. index + T - 1.

    Written with `where`, not with a slice update, because Keras's slice update is an XLA op on
    TensorFlow even outside XLA, which TensorFlow Serving and ONNX converters do not run.
    `index` is an int32 scalar, the same for all rows.
    """
    length = update.shape[2]
    slots = ops.arange(ops.shape(buffer)[2], dtype="int32")
    if length == 1:
        return ops.where((slots == index)[:, None], update, buffer)  # (B, N, M, H)
    length = ops.shape(update)[2]
    offset = slots - index
    inside = ops.logical_and(offset >= 0, offset < length)
    spread = ops.take(update, ops.clip(offset, 0, length - 1), axis=2)  # (B, N, M, H)
    return ops.where(inside[:, None], spread, buffer)


def check_cache(cache, num_heads, key_dim, value_dim):
    """Refuses a cache that is not one of a layer of these sizes."""
    for name, size in (("key", key_dim), ("value", value_dim)):
        if name not in cache:
            raise ValueError(
                "`cache` must come from `KVCache.initial`, from `context_cache` or from an "
                f"earlier call. Received: a cache with {sorted(cache)}."
            )
        check_shape(cache[name], f"cache['{name}']", (None, num_heads, None, size))


def extend_cache(cache, key, value):
    """`cache` with per-head `key` and `value` (B, N, T, H) in its next T slots.

    With an `index` of None every slot is filled, and new ones are added.
    """
    index = cache["index"]
    if index is None:
        key, value = (
            ops.concatenate([old, new], axis=2)
            for old, new in ((cache["key"], key), (cache["value"], value))
        )
        return {"key": key, "value": value, "index": None}
    batch, _, length, _ = key.shape
    check_shape(cache["key"], "cache['key']", (batch, None, None, None))
    num_slots = cache["key"].shape[2]
    if None not in (length, num_slots) and length > num_slots:
        raise ValueError(
            "`cache` must have a slot for each new key. "
            f"Received: {num_slots} slots, {length} new keys."
        )
    return {
        "key": write_slots(cache["key"], key, index),
        "value": write_slots(cache["value"], value, index),
        "index": index + ops.shape(key)[2],
    }
