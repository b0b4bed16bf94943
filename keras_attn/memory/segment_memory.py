"""A memory of the inputs of each layer in earlier segments."""

import keras
from keras import ops

from keras_attn.memory.memory import Memory
from keras_attn.ops.checks import check_mask, check_shape, check_sizes
from keras_attn.ops.shapes import pad, size, slice_axis
from keras_attn.ops.sorting import row_starts, sort_order, take_rows
from keras_attn.registry import Configurable, register


@register
class SegmentMemory(Memory):
    """Keep the last inputs of each layer, so that a text can be read segment by segment.

        m_l' = SG(last M of [m_l; h_l]),   h_l the input of layer l,   SG stops the gradient

    The state is explicit: a dict of `memory` (B, L, M, D) and `memory_length` (B,), the number of
    filled slots, which are the last ones. It is an argument and a result of the model's call on a
    segment. Its size is fixed, so nothing is retraced; empty slots are never attended. No gradient
    passes through it, but keys and values are projected from it anew, and their weights learn from
    that. A text of n tokens costs O(n (T + M)) in segments of T, and with L layers the receptive
    field reaches L M tokens before the segment. Memory O(B L M D).

    Positions of keys count from the memory's first slot: scores and patterns may depend on
    distances, and a pattern with blocks at fixed positions (`Fixed`, `BlockLocal1D`) needs memory
    and segments of whole blocks. The first keys of `Sinks`, `Global` and `Prefix` are the memory's
    first slots, not the text's first tokens. Padding must be at the end of a segment, and is not
    remembered.

    Use it for texts, streams and episodes that are longer than one segment.

    Args:
        memory_length: int. Number M of inputs that each layer keeps; 0 keeps nothing.

    Raises:
        ValueError: if `memory_length` < 0.

    Example:
        >>> import keras_attn
        >>> from keras import ops
        >>> memory = keras_attn.memory.SegmentMemory(4)
        >>> state = memory.initial(batch_size=1, num_layers=2, hidden_dim=8)
        >>> state = memory.extend(state, hidden=ops.ones((1, 2, 3, 8)))
        >>> state["memory"].shape, state["memory_length"].numpy().tolist()
        (TensorShape([1, 2, 4, 8]), [3])

    Differs from the paper: filled slots are counted; the authors' memory starts short and grows.

    Reference: [Dai et al., 2019](https://arxiv.org/abs/1901.02860), section 3.2.
    """

    def __init__(self, memory_length):
        check_sizes(0, memory_length=memory_length)
        self.memory_length = int(memory_length)

    def initial(self, batch_size, num_layers, hidden_dim, dtype="float32"):
        memory = ops.zeros((batch_size, num_layers, self.memory_length, hidden_dim), dtype)
        return {"memory": memory, "memory_length": ops.zeros((batch_size,), "int32")}

    def extend(self, state, hidden, padding_mask=None, depth=None):
        masks = () if padding_mask is None else (padding_mask,)
        extend = _Extend(self.memory_length)
        memory, length = extend(state["memory"], state["memory_length"], hidden, *masks)
        return {"memory": memory, "memory_length": length}


@register
class _Extend(Configurable, keras.Operation):
    """Extend a memory, as one operation that a functional model can have as a node."""

    def __init__(self, memory_length, name=None):
        super().__init__(name=name)
        self.memory_length = memory_length

    def call(self, memory, memory_length, hidden, padding_mask=None):
        states, real, filled, length = join_states(memory, memory_length, hidden, padding_mask)
        kept = keep_last(states, self.memory_length, real)
        return ops.stop_gradient(kept), ops.minimum(filled + length, self.memory_length)


def join_states(memory, memory_length, hidden, padding_mask=None):
    """Join a memory (B, L, M, D) and the inputs (B, L, T, D) of a segment.

    Returns:
        The states (B, L, M + T, D); a mask of the real ones, bool (B, M + T), or None if those are
        the last; and the numbers of filled slots and of real inputs.
    """
    batch, num_layers, _, hidden_dim = hidden.shape
    check_shape(memory, "memory", (batch, num_layers, None, hidden_dim))
    check_shape(memory_length, "memory_length", (batch,))
    num_slots, length = size(memory, 2), size(hidden, 2)
    filled = ops.clip(ops.cast(memory_length, "int32"), 0, num_slots)
    states = ops.concatenate([memory, ops.cast(hidden, memory.dtype)], axis=2)
    if padding_mask is None:
        return states, None, filled, length
    shape = batch, hidden.shape[2]
    padding_mask = check_mask(padding_mask, "padding_mask", shape, broadcast=False)
    real = ops.concatenate([filled_slots(filled, num_slots), padding_mask], axis=1)
    return states, real, filled, ops.sum(ops.cast(padding_mask, "int32"), axis=1)


def filled_slots(length, num_slots):
    """Return a mask of the last `length` (B,) of M slots, bool (B, M)."""
    slots = ops.arange(num_slots, dtype="int32")
    return slots >= num_slots - ops.cast(length, "int32")[:, None]


def keep_last(states, num_slots, real=None):
    """Keep the last real states of (B, L, S, D) in the last slots of (B, L, num_slots, D).

    The slots before them hold arbitrary numbers. `real` (B, S) may be False anywhere; without it
    only states at the front are not real.
    """
    missing = num_slots - size(states, 2)
    if isinstance(missing, int):
        missing = max(missing, 0)
    else:  # while JAX builds a model, an unknown size is no tensor: use the upper bound
        missing = ops.maximum(missing, 0) if ops.is_tensor(missing) else num_slots
    states = pad(states, missing, 0)
    first = size(states, 2) - num_slots
    if real is None:
        return slice_axis(states, first, num_slots, axis=2)
    order, _ = sort_order(ops.cast(pad(real, missing, 0, axis=1), "int32"))
    kept = slice_axis(order, first, num_slots, axis=1)[:, None]  # (B, 1, M)
    return take_rows(states, row_starts(states) + kept)
