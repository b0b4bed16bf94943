"""The base class of memories, and those that keep what came before a segment as it is."""

import keras
from keras import ops

from keras_attn.ops.checks import check_mask, check_shape, check_sizes, check_that
from keras_attn.ops.shapes import pad, size, slice_axis
from keras_attn.ops.sorting import row_starts, sort_order, take_rows
from keras_attn.registry import Configurable, Value, register


class Memory(Value):
    """Base class of memories of what the layers of a model read in earlier segments.

    The state is explicit: a dict of tensors, which are inputs and outputs of a model under the same
    names. The depth reads `memory` (B, L, M, D) and `memory_length` (B,), the number of filled
    slots, which are the last ones. A subclass defines `initial` and `extend`, and passes no
    gradient on from one segment to the next. A memory is saved with its model;
    one with weights is a `keras_attn.registry.LayerValue` too.

    Attributes:
        lengths: tuple of the names of the state's numbers of slots, int32 (B,), `memory_length`
            and others.
    """

    lengths = ("memory_length",)

    def slot_shape(self, depth, hidden_dim):
        """Return the sizes L and D of the memory (B, L, M, D) of a `Stack` of that width."""
        if depth.retrieving_layers:
            raise ValueError(
                "A depth with a `KNNAttention` needs a `KNNMemory`. "
                f"Received: memory={self!r}, depth={depth!r}."
            )
        return depth.num_layers, hidden_dim

    def initial(self, batch_size, num_layers, hidden_dim, dtype="float32"):
        """Return an empty state of `batch_size` rows for `num_layers` layers of this width."""
        raise NotImplementedError(f"{type(self).__name__} must define `initial`.")

    def extend(self, state, hidden, padding_mask=None, depth=None):
        """Return the state after a segment.

        A model calls this on symbolic tensors, whose numbers of rows and positions are None: wrap
        what needs sizes in a `keras.Operation`.

        Args:
            state: as before the segment; of any number of slots.
            hidden: (B, L, T, D), the inputs of the layers, from a `Stack` called with a memory.
            padding_mask: bool (B, T), True where a token is real. Others are not remembered.
            depth: the `Stack`, for a memory that learns from how its layers attend.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `extend`.")

    def reset(self, state, rows):
        """Return the state with an empty memory in the rows where `rows`, bool (B,), is True."""
        length = state["memory_length"]
        rows = rows if hasattr(rows, "shape") else ops.convert_to_tensor(rows)
        check_shape(rows, "rows", tuple(length.shape))
        return {**state, "memory_length": ops.where(rows, 0, length)}


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
class KNNMemory(SegmentMemory):
    """Keep the last keys and values of one layer, among which each query finds the best.

        m' = SG(last M of [m; (k_1, v_1) .. (k_T, v_T)]),   SG stops the gradient

    For a depth with one block whose attention is a `keras_attn.layers.KNNAttention`: its queries
    find the `top_k` keys of the memory with the largest logits, and the other blocks read the
    segment alone. The state is that of a `SegmentMemory`, with heads in place of layers: `memory`
    (B, N, M, H + Hv), for N heads of keys, and `memory_length` (B,). Keys are kept as they were
    computed, so those of older weights differ in training. Time O(T N M H) for a segment of T, and
    memory O(B N M (H + Hv)).

    Use it for texts that refer to names and definitions many thousand tokens back.

    Args:
        memory_length: int. Number M of keys to keep.

    Example:
        >>> import keras_attn
        >>> from keras_attn.layers import FeedForward, KNNAttention, TransformerBlock
        >>> attention = KNNAttention(2, 4, top_k=8, score="relative", pattern="causal")
        >>> model = keras_attn.models.CausalLanguageModel(
        ...     keras_attn.layers.TokenEmbedding(50, 8),
        ...     keras_attn.depth.Stack([TransformerBlock(attention, FeedForward(16))]),
        ...     memory=keras_attn.memory.KNNMemory(4096))
        >>> model.initial_memory(batch_size=1)["memory"].shape
        TensorShape([1, 2, 4096, 8])

    Differs from the paper: as `keras_attn.layers.KNNAttention`; no other layer keeps a segment.

    Reference: [Wu et al., 2022](https://arxiv.org/abs/2203.08913), section 3.2.
    """

    def slot_shape(self, depth, hidden_dim):
        layers = depth.retrieving_layers
        check_that(len(layers) == 1, "a depth with one `KNNAttention`", depth=depth)
        return layers[0].num_key_value_heads, layers[0].key_dim + layers[0].value_dim


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
    return slots >= num_slots - ops.expand_dims(ops.cast(length, "int32"), 1)


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
    kept = ops.expand_dims(slice_axis(order, first, num_slots, axis=1), 1)  # (B, 1, M)
    return take_rows(states, row_starts(states) + kept)
