"""Reading the prompt: the part of decoding before the first choice."""

from typing import NamedTuple

from keras import ops


class Prompt(NamedTuple):
    """What decoding knows once the prompt is read.

    Attributes:
        logits: (B, V), for the first token to write.
        constants: what no step changes.
        cache: holds the prompt in its first slots.
        size: number of slots that the prompt fills.
        positions: (1,) or (B, 1), the position of the first token to write.
        real: bool (B, size), which of these slots hold a token; None if all.
    """

    logits: object
    constants: object
    cache: object
    size: object
    positions: object
    real: object


def read_prompt(model, inputs, task, num_slots):
    """Starts `model` on `inputs`, with room for `num_slots` tokens more in a cache of fixed size."""
    if task.grows:
        num_slots = 0
    if not model.reads_prompt:
        batch_size = ops.shape(inputs)[0]
        tokens, size, real = ops.full((batch_size, 1), task.bos_id, dtype="int32"), 1, None
        first, last = ops.ones((1,), "int32"), None
    else:
        tokens, size, real = inputs, ops.shape(inputs)[1], ops.not_equal(inputs, 0)
        first = ops.sum(ops.cast(real, "int32"), axis=1, keepdims=True)  # (B, 1)
        last = ops.maximum(first - 1, 0)
    constants, cache = model.start(inputs, None if task.grows else size + num_slots)
    masks = {} if real is None else {"padding_mask": pad_slots(real, num_slots)}
    logits, cache = model.step(
        tokens, constants, cache, ops.arange(size, dtype="int32"), last=last, **masks
    )
    return Prompt(logits[:, 0], constants, cache, size, first, real)


def pad_slots(real, num_slots):
    """The prompt's mask (B, P), with True for `num_slots` slots more."""
    return ops.pad(real, [[0, 0], [0, num_slots]], constant_values=True)


def slot_positions(prompt, beams, slots):
    """Positions of slots: the prompt's own, then `beams` slots for each step; (M,) or (B, M)."""
    written = prompt.positions + (slots - prompt.size) // beams
    return ops.where(slots < prompt.size, slots, written)
