"""Rows in which one episode ends and the next begins."""

from keras import ops


def episode_masks(starts, real, memory_length, num_slots):
    """What the steps of a segment may see, where none sees beyond the start of its own episode.

    Args:
        starts: bool (B, T), where the first step of an episode stands.
        real: bool (B, T), which steps are no padding; None if all are.
        memory_length: int (B,). num_slots: M, the memory that stands before the segment.

    Returns:
        attention mask, bool (B, T, M + T); which steps belong to the last episode, bool (B, T); and
        how many slots of the memory do, int32 (B,).
    """
    if real is not None:
        starts = ops.logical_and(starts, real)
    episode = ops.cumsum(ops.cast(starts, "int32"), axis=1)  # (B, T), 0 for the memory's own
    is_memorys = ops.equal(episode, 0)[:, :, None]  # (B, T, 1)
    slots = ops.broadcast_to(is_memorys, (*ops.shape(episode), num_slots))
    same = ops.equal(episode[:, :, None], episode[:, None, :])  # (B, T, T)
    last = ops.max(episode, axis=1, keepdims=True)
    of_last = ops.equal(episode, last)
    if real is not None:
        of_last = ops.logical_and(of_last, real)
    memory_length = ops.where(last[:, 0] > 0, 0, ops.cast(memory_length, "int32"))
    return ops.concatenate([slots, same], axis=2), of_last, memory_length
