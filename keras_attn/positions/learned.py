"""Learned positions."""

import keras

from keras_attn.backend.operations import take_rows
from keras_attn.initializers import redraw
from keras_attn.ops.checks import check_sizes
from keras_attn.ops.images import grid_positions
from keras_attn.positions.position import Position
from keras_attn.registry import register


@register
class Learned(Position):
    """Add a learned vector to each position.

        x_p + P[p],   P (max_length, D)

    Time and memory O(T D), weights max_length * D. A sequence longer than the table is refused;
    only a graph of unknown length that XLA compiles reads the last row for the rest.

    Use it for texts up to a fixed length, as in BERT and GPT-2.

    Args:
        max_length: int. Number of positions in the table.
        embeddings_initializer: of the table.

    Call arguments and returns:
        As `Position`, with positions below `max_length`.

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

    weight_axes = {"table": ()}

    def __init__(self, max_length, embeddings_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        check_sizes(max_length=max_length)
        self.max_length = max_length
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, x_shape, positions_shape=None):
        shape = (self.max_length, x_shape[-1])
        self.table = self.add_weight(shape, redraw(self.embeddings_initializer), name="table")

    def call(self, x, positions=None):
        positions = grid_positions(x, positions, (self.max_length,))
        # A take, not a slice: a dynamic length beyond the table fails instead of wrapping.
        return self._add(x, take_rows(self.table, positions))
