"""Learned positions."""

import keras
from keras import ops

from keras_attn.ops.checks import check_integers, check_positions, check_shape, check_sizes
from keras_attn.positions.position import Position
from keras_attn.registry import redraw, register


@register
class Learned(Position):
    """Adds a learned vector to each position.

        x_p + P[p],   P (max_length, D)

    Time and memory O(T D), weights max_length * D. A sequence longer than the table has no answer
    and is refused, not clipped.

    Args:
        max_length: int. Number of positions in the table.
        embeddings_initializer: of the table.

    Call arguments:
        x: (B, T, D). positions: optional int (T,) or (B, T), below `max_length`; by default
            0 .. T-1.

    Returns:
        (B, T, D).

    Raises:
        ValueError: if `max_length` < 1, or `x` is longer than the table.

    Example:
        >>> from keras import ops
        >>> from keras_attn.positions import Learned
        >>> Learned(max_length=16)(ops.zeros((1, 3, 4))).shape[1:]
        TensorShape([3, 4])

    Differs from the paper: none.

    Reference: [Gehring et al., 2017](https://arxiv.org/abs/1705.03122), section 3.1;
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.5.
    """

    def __init__(self, max_length, embeddings_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        check_sizes(max_length=max_length)
        self.max_length = max_length
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, x_shape, positions_shape=None):
        shape = (self.max_length, x_shape[-1])
        self.table = self.add_weight(shape, redraw(self.embeddings_initializer), name="table")

    def call(self, x, positions=None):
        check_shape(x, "x", (None, None, None))
        if positions is not None:
            positions = check_positions(positions, "positions", *x.shape[:2])
            check_integers(positions, "positions")
            return x + ops.cast(ops.take(self.table, positions, axis=0), x.dtype)
        if x.shape[1] is not None and x.shape[1] > self.max_length:
            raise ValueError(
                f"`x` is longer than the table of learned positions. "
                f"Received: length {x.shape[1]}, max_length={self.max_length}."
            )
        # A take, not a slice: a dynamic length beyond the table fails instead of wrapping.
        rows = ops.take(self.table, ops.arange(ops.shape(x)[1], dtype="int32"), axis=0)
        return x + ops.cast(rows, x.dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "max_length": self.max_length,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
        }
