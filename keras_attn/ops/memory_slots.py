"""Memories of a fixed number of slots, the last of which are filled, and their episode masks."""

from keras import ops

from keras_attn.ops.shapes import pad, size, slice_axis
from keras_attn.ops.sorting import row_starts, sort_order, take_rows


def filled_slots(length, num_slots):
    """Return bool (B, M), True at the last `length` (B,) of M slots."""
    slots = ops.arange(num_slots, dtype="int32")
    return slots >= num_slots - ops.cast(length, "int32")[:, None]


def keep_last(states, num_slots, real=None):
    """Keep the last real states (B, L, S, D) in the last slots of (B, L, num_slots, D).

    The content of the slots before them is arbitrary. `real` (B, S) may be False anywhere: the
    states that are kept become adjacent. Without it all states are real.
    """
    missing = num_slots - size(states, 2)
    if isinstance(missing, int):
        missing = max(missing, 0)
    else:
        # While JAX builds a model, an unknown size is not a tensor: take the largest possible one.
        missing = ops.maximum(missing, 0) if ops.is_tensor(missing) else num_slots
    states = pad(states, missing, 0)
    first = size(states, 2) - num_slots
    if real is None:
        return slice_axis(states, first, num_slots, axis=2)
    order, _ = sort_order(ops.cast(pad(real, missing, 0, axis=1), "int32"))
    kept = slice_axis(order, first, num_slots, axis=1)[:, None]  # (B, 1, M)
    return take_rows(states, row_starts(states) + kept)


def episode_masks(starts, real, memory_length, num_slots):
    """Return masks that keep each step of a segment inside its own episode.

    Args:
        starts: bool (B, T), True at the first step of an episode.
        real: bool (B, T), False for padding; None if all steps are real.
        memory_length: int (B,). num_slots: M, slots of memory before the segment.

    Returns:
        The attention mask, bool (B, T, M + T); bool (B, T), True at steps of the last episode; and
        int32 (B,), the number of memory slots that belong to the last episode.
    """
    if real is not None:
        starts = ops.logical_and(starts, real)
    episode = ops.cumsum(ops.cast(starts, "int32"), axis=1)  # (B, T), 0 for the memory's episode
    is_memorys = ops.equal(episode, 0)[:, :, None]  # (B, T, 1)
    slots = ops.broadcast_to(is_memorys, (*ops.shape(episode), num_slots))
    same = ops.equal(episode[:, :, None], episode[:, None, :])  # (B, T, T)
    last = ops.max(episode, axis=1, keepdims=True)
    of_last = ops.equal(episode, last)
    if real is not None:
        of_last = ops.logical_and(of_last, real)
    memory_length = ops.where(last[:, 0] > 0, 0, ops.cast(memory_length, "int32"))
    return ops.concatenate([slots, same], axis=2), of_last, memory_length
