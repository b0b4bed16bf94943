"""The contract of memories of earlier segments."""

from keras import ops

from keras_attn.ops.checks import check_shape
from keras_attn.registry import Value


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
