"""Writing new keys and values into a buffer of fixed size."""

from keras import ops


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


def extend_cache(cache, key, value):
    """`cache` with per-head `key` and `value` (B, N, T, H) in its next T slots."""
    index = cache["index"]
    return {
        "key": write_slots(cache["key"], key, index),
        "value": write_slots(cache["value"], value, index),
        "index": index + ops.shape(key)[2],
    }
