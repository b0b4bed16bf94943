"""Embedding of the segment of a token."""

import keras
from keras import ops

from keras_attn import registry
from keras_attn.initializers import redraw
from keras_attn.ops.checks import check_ids, check_shape, check_sizes


@registry.register
class SegmentEmbedding(registry.MaskedLayer):
    """Add a learned vector for the segment that a token belongs to.

        x_p + S[segment_p],   S (num_segments, D)

    Time and memory O(T D).

    Args:
        num_segments: int. Number of segments.
        embeddings_initializer: of the table.

    Call arguments:
        x: (B, T, D).
        segment_ids: optional int (B, T); by default all 0.

    Returns:
        (B, T, D).

    Raises:
        ValueError: if `num_segments` < 1.

    Example:
        >>> import keras, keras_attn
        >>> layer = keras_attn.layers.SegmentEmbedding(2)
        >>> layer(keras.ops.zeros((1, 3, 4)), keras.ops.array([[0, 0, 1]])).shape
        TensorShape([1, 3, 4])

    Differs from the paper: none.

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3, figure 2.
    """

    weight_axes = {"table": ()}

    def __init__(self, num_segments=2, embeddings_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        check_sizes(num_segments=num_segments)
        self.num_segments = num_segments
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, x_shape, segment_ids_shape=None):
        initializer = redraw(self.embeddings_initializer)
        self.table = self.add_weight((self.num_segments, x_shape[-1]), initializer, name="table")

    def call(self, x, segment_ids=None):
        if segment_ids is None:
            return x + ops.cast(self.table[0], x.dtype)
        segment_ids = ops.convert_to_tensor(segment_ids)
        check_shape(segment_ids, "segment_ids", x.shape[:2])
        check_ids(segment_ids, "segment_ids", self.num_segments)
        return x + ops.cast(ops.take(self.table, segment_ids, axis=0), x.dtype)

    def compute_output_shape(self, x_shape, segment_ids_shape=None):
        return x_shape
