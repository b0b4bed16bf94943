"""Memories of a fixed number of slots, of which the last ones are filled."""

from keras import ops

from keras_attn.ops.shapes import pad, size, slice_axis
from keras_attn.ops.sorting import row_starts, sort_order, take_rows


def filled_slots(length, num_slots):
    """Bool (B, M): the last `length` (B,) of M slots."""
    slots = ops.arange(num_slots, dtype="int32")
    return slots >= num_slots - ops.cast(length, "int32")[:, None]


def keep_last(states, num_slots, real=None):
    """The last real ones of `states` (B, L, S, D) in the last slots of (B, L, num_slots, D).

    What the slots before them hold is arbitrary. `real` (B, S) may be False anywhere: what is kept
    closes up. Without it only states at the front are not real.
    """
    missing = num_slots - size(states, 2)
    if isinstance(missing, int):
        missing = max(missing, 0)
    else:
        # While JAX builds a model, a size that is not known is no tensor: as many as may be.
        missing = ops.maximum(missing, 0) if ops.is_tensor(missing) else num_slots
    states = pad(states, missing, 0)
    first = size(states, 2) - num_slots
    if real is None:
        return slice_axis(states, first, num_slots, axis=2)
    order, _ = sort_order(ops.cast(pad(real, missing, 0, axis=1), "int32"))
    kept = slice_axis(order, first, num_slots, axis=1)[:, None]  # (B, 1, M)
    return take_rows(states, row_starts(states) + kept)
