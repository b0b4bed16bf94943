"""Token embeddings, wide for frequent words and narrow for rare ones."""

import itertools
import math

import keras
from keras import ops

from keras_attn import registry
from keras_attn.backend.operations import take_rows
from keras_attn.initializers import redraw
from keras_attn.layers.id_reader import IdReader
from keras_attn.ops.checks import check_pad_id, check_sizes
from keras_attn.ops.ids import row_ids
from keras_attn.ops.shapes import flatten_rows


@registry.register
class AdaptiveEmbedding(IdReader, registry.MaskedLayer):
    """Embed tokens by one table for each cluster of words: the rarer, the narrower.

        x = sqrt(D) E_i[token - first_i] P_i,   first_i <= token < end_i,   d_i = D / div_val^i

    The clusters are [0, cutoffs[0]), [cutoffs[0], cutoffs[1]), ..., [cutoffs[-1], V), so ids must
    be in the order of falling frequency. `AdaptiveSoftmax(embedding)` predicts words by the
    same tables. With a `div_val` of 1 there is no projection P_i, and x is what `TokenEmbedding`
    gives. Weights V_i d_i + d_i D for each cluster i; time O(T D sum_i d_i).

    Args:
        vocabulary_size: int. Number of tokens V.
        hidden_dim: int. Width D.
        cutoffs: ints, growing, between 0 and V: where clusters after the first begin. None at all
            give a single cluster.
        div_val: int. By how much each cluster is narrower than the one before.
        scaled: bool. If True, embeddings are multiplied by sqrt(D).
        pad_id: int. The id of padding, of which the layer makes Keras's implicit mask; None for
            none.
        embeddings_initializer: of the tables; by default normal with standard deviation D^-1/2.
        projection_initializer: of P_i; by default normal with standard deviation d_i^-1/2. Both
            defaults together give the scaled embeddings unit variance.

    Call arguments:
        token_ids: int (B, T).

    Returns:
        (B, T, D).

    Raises:
        ValueError: if a size is below 1, `cutoffs` do not grow from above 0 to below V, the last
            cluster would have width 0, or `token_ids` are not integers or, in an eager call, not
            ids of the vocabulary.
        InvalidArgumentError: in a graph, as `TokenEmbedding`.

    Example:
        >>> import keras, keras_attn
        >>> embedding = keras_attn.layers.AdaptiveEmbedding(100, 16, cutoffs=[10, 30], div_val=4)
        >>> embedding(keras.ops.array([[5, 27, 99]])).shape
        TensorShape([1, 3, 16])
        >>> [tuple(table.shape) for table in embedding.tables]
        [(10, 16), (20, 4), (70, 1)]

    Differs from the paper: none; Transformer-XL has the same tables.

    Reference: [Baevski and Auli, 2018](https://arxiv.org/abs/1809.10853), section 3;
        [Dai et al., 2019](https://arxiv.org/abs/1901.02860), section 4.1.
    """

    weight_axes = {"table": ("model",), "projection": ()}

    def __init__(
        self,
        vocabulary_size,
        hidden_dim,
        cutoffs=(),
        div_val=1,
        scaled=True,
        pad_id=0,
        embeddings_initializer=None,
        projection_initializer=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_sizes(vocabulary_size=vocabulary_size, hidden_dim=hidden_dim, div_val=div_val)
        check_pad_id(pad_id, vocabulary_size)
        if not isinstance(cutoffs, (list, tuple)):
            raise ValueError(f"`cutoffs` must be a list of ints. Received: cutoffs={cutoffs!r}.")
        check_sizes(**{f"cutoffs[{i}]": cutoff for i, cutoff in enumerate(cutoffs)})
        # The first id of each cluster and the one after its last.
        self.bounds = list(itertools.pairwise([0, *cutoffs, vocabulary_size]))
        if any(first >= end for first, end in self.bounds):
            raise ValueError(
                "`cutoffs` must grow, between 0 and `vocabulary_size`. Received: "
                f"cutoffs={list(cutoffs)}, vocabulary_size={vocabulary_size}."
            )
        if hidden_dim < div_val ** len(cutoffs):
            raise ValueError(
                "`hidden_dim` must be at least `div_val` to the power of the number of cutoffs, so "
                f"that the last cluster has a width. Received: hidden_dim={hidden_dim}, "
                f"div_val={div_val}, {len(cutoffs)} cutoffs."
            )
        self.vocabulary_size = vocabulary_size
        self.hidden_dim = hidden_dim
        self.cutoffs = [int(cutoff) for cutoff in cutoffs]
        self.div_val = div_val
        self.scaled = scaled
        self.pad_id = pad_id
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.projection_initializer = keras.initializers.get(projection_initializer)
        self.widths = [hidden_dim // div_val**i for i in range(len(self.bounds))]

    def build(self, input_shape=None):
        self.tables = [
            self.add_weight((end - first, width), self.table_initializer(), name=f"table_{i}")
            for i, ((first, end), width) in enumerate(zip(self.bounds, self.widths))
        ]
        self.projections = self.make_projections(self)

    def table_initializer(self):
        """Return the initializer of the tables."""
        normal = keras.initializers.RandomNormal(stddev=self.hidden_dim**-0.5)
        return redraw(self.embeddings_initializer or normal)

    def make_projections(self, owner, count=None):
        """Add the first `count` projections (d_i, D) as weights of the layer `owner`."""
        projections = []
        for i, width in enumerate(self.widths[:count] if self.div_val > 1 else ()):
            initializer = self.projection_initializer or keras.initializers.RandomNormal(
                stddev=width**-0.5
            )
            shape, name = (width, self.hidden_dim), f"projection_{i}"
            projections.append(owner.add_weight(shape, redraw(initializer), name=name))
        return projections

    def call(self, inputs):
        tokens = row_ids(inputs, "token_ids", self.vocabulary_size)
        # No cluster has a row for ids out of range, as in one table.
        tokens = ops.where(tokens < 0, self.vocabulary_size, tokens)
        x = None
        for i, (first, end) in enumerate(self.bounds):
            places = ops.maximum(tokens, first) - first
            if end < self.vocabulary_size:
                places = ops.minimum(places, end - first - 1)
            rows = take_rows(self.tables[i], places)
            if self.projections:
                rows, unflatten = flatten_rows(rows)
                rows = unflatten(ops.matmul(rows, self.projections[i]))
            x = rows if x is None else ops.where(ops.expand_dims(tokens >= first, -1), rows, x)
        return x * ops.cast(math.sqrt(self.hidden_dim), x.dtype) if self.scaled else x

    def compute_mask(self, inputs, previous_mask=None):
        return previous_mask if self.pad_id is None else ops.not_equal(inputs, self.pad_id)

    def call_products(self, output_shape, inputs):
        """Return the multiply-adds of a call: all projections of all tokens."""
        return math.prod(inputs) * sum(math.prod(x.shape) for x in self.projections)

    def hidden_products(self, output_shape, inputs):
        """Return those of `call_products` that multiply rows of the layer's own tables: all."""
        return self.call_products(output_shape, inputs)

    def compute_output_spec(self, inputs):
        return keras.KerasTensor((*inputs.shape, self.hidden_dim), dtype=self.compute_dtype)
