"""Embeddings of tokens, and of the segments that they belong to."""

import math

import keras
from keras import ops

from keras_attn import registry
from keras_attn.backend.loop_invariants import in_loop_invariants, weights_invariant
from keras_attn.backend.operations import take_rows
from keras_attn.backend.replicas import keep_rows
from keras_attn.initializers import redraw
from keras_attn.layers.id_reader import IdReader
from keras_attn.ops.checks import (
    check_pad_id,
    check_positive,
    check_shape,
    check_sizes,
)
from keras_attn.ops.ids import row_ids
from keras_attn.ops.shapes import flatten_rows


@registry.register
class TokenEmbedding(IdReader, registry.MaskedLayer):
    """Embed tokens by a table, and compute logits with the same table.

        x = sqrt(D) E[token],   logits = x E^T

    Only embeddings are scaled, not logits. Logits are float32 under any dtype policy. Time O(T D)
    for embeddings, O(T D V) for logits; one table of V * D weights.

    Args:
        vocabulary_size: int. Number of tokens V.
        hidden_dim: int. Width D.
        scaled: bool. If True, embeddings are multiplied by sqrt(D).
        pad_id: int. The id of padding, of which the layer makes Keras's implicit mask; None for
            none.
        embeddings_initializer: of the table; by default normal with standard deviation D^-1/2,
            which gives the scaled embeddings unit variance.
        logits_cap: float. Bound c of the logits, which are then c tanh(x E^T / c); None for none.

    Call arguments:
        token_ids: int (B, T).

    Returns:
        (B, T, D); `logits(x)` of (B, T, D) gives (B, T, V).

    Raises:
        ValueError: if a size is below 1, `pad_id` is no id, `logits_cap` is not above 0, or
            `token_ids` are not integers or, in an eager call, not ids of the vocabulary.
        InvalidArgumentError: in a graph of TensorFlow on the CPU, if an id is not in [0, V). XLA
            drops this check: it reads the first or the last row, and on JAX the result is NaN.

    Example:
        >>> import keras, keras_attn
        >>> embedding = keras_attn.layers.TokenEmbedding(100, 8)
        >>> x = embedding(keras.ops.array([[5, 7, 0]]))
        >>> embedding.logits(x).shape
        TensorShape([1, 3, 100])

    Differs from the paper: none.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.4; tying:
        [Press and Wolf, 2017](https://arxiv.org/abs/1608.05859), section 3; the bound:
        [Gemma Team, 2024](https://arxiv.org/abs/2408.00118), section 2.
    """

    weight_axes = {"table": ("model",)}

    def __init__(
        self,
        vocabulary_size,
        hidden_dim,
        scaled=True,
        pad_id=0,
        embeddings_initializer=None,
        logits_cap=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_sizes(vocabulary_size=vocabulary_size, hidden_dim=hidden_dim)
        check_pad_id(pad_id, vocabulary_size)
        self.vocabulary_size = vocabulary_size
        self.hidden_dim = hidden_dim
        self.scaled = scaled
        self.pad_id = pad_id
        if logits_cap is not None:
            check_positive(logits_cap=logits_cap)
        self.logits_cap = logits_cap
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, input_shape=None):
        initializer = self.embeddings_initializer or keras.initializers.RandomNormal(
            stddev=self.hidden_dim**-0.5
        )
        shape = (self.vocabulary_size, self.hidden_dim)
        self.table = self.add_weight(shape, redraw(initializer), name="table")

    def logits(self, x):
        """Return the dot products of `x` (B, T, D) with all rows of the table, (B, T, V)."""
        return self(x, reverse=True)

    def call(self, inputs, reverse=False):
        if reverse:
            check_shape(inputs, "x", (*inputs.shape[:-1], self.hidden_dim))
            rows, unflatten = flatten_rows(inputs)
            # XLA multiplies several rows by a transposed table three times faster if it is stored.
            columns = self._columns()
            logits = ops.cast(unflatten(ops.matmul(rows, columns)), "float32")
            cap = self.logits_cap
            return logits if cap is None else cap * ops.tanh(logits / cap)
        ids = row_ids(inputs, "token_ids", self.vocabulary_size)
        x = keep_rows(take_rows(self.table, ids))
        return x * ops.cast(math.sqrt(self.hidden_dim), x.dtype) if self.scaled else x

    def _columns(self):
        """Return the transposed table, which a loop makes once."""
        if in_loop_invariants():
            return weights_invariant(self, "columns", self._transposed)
        return self._transposed()

    def _transposed(self):
        return ops.transpose(ops.cast(self.table, self.compute_dtype))

    def compute_mask(self, inputs, previous_mask=None):
        if keras.backend.is_float_dtype(inputs.dtype) or self.pad_id is None:
            return previous_mask
        return ops.not_equal(inputs, self.pad_id)

    def call_products(self, output_shape, inputs):
        """Return the multiply-adds of a call: of logits, since a row is only looked up."""
        is_lookup = len(inputs) < len(output_shape)
        return 0 if is_lookup else math.prod(output_shape) * self.hidden_dim

    def compute_output_spec(self, inputs, reverse=False):
        if reverse:
            return keras.KerasTensor((*inputs.shape[:-1], self.vocabulary_size), dtype="float32")
        return keras.KerasTensor((*inputs.shape, self.hidden_dim), dtype=self.compute_dtype)


@registry.register
class SegmentEmbedding(IdReader, registry.MaskedLayer):
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
        ValueError: if `num_segments` < 1, or in an eager call an id is not in [0, num_segments).
        InvalidArgumentError: in a graph, as `TokenEmbedding`.

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
        ids = row_ids(segment_ids, "segment_ids", self.num_segments)
        return x + ops.cast(take_rows(self.table, ids), x.dtype)

    def compute_output_shape(self, x_shape, segment_ids_shape=None):
        return x_shape
