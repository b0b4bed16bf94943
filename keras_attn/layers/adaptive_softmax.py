"""Adaptive softmax: cheap log-probabilities for large vocabularies."""

import math

import keras
from keras import ops

from keras_attn import registry
from keras_attn.backend.operations import can_branch, switch
from keras_attn.layers.adaptive_embedding import AdaptiveEmbedding
from keras_attn.layers.id_reader import IdReader
from keras_attn.ops.checks import check_choice, check_shape
from keras_attn.ops.ids import narrow
from keras_attn.ops.shapes import ceil_div, flatten_rows, size
from keras_attn.ops.sorting import sort_order
from keras_attn.ops.token_losses import (
    check_labels,
    crossentropy,
    known_labels,
    token_weights,
)

# A cluster's logits are computed for a 64th, a 16th, a quarter or all of the tokens. The shapes of
# a graph are fixed when it is built, the number of a cluster's tokens is not: the smallest part
# that holds them is chosen when it runs.
PARTS = (64, 16, 4, 1)


@registry.register
class AdaptiveSoftmax(IdReader, registry.MaskedLayer):
    """Predict words in two steps: a frequent word or a cluster, then a word of the cluster.

        p(w) = softmax(z_0)(w) for the words of the first cluster,
        p(w) = softmax(z_0)(cluster i) softmax(z_i)(w) for those of cluster i >= 1,
        z_i = x P_i^T E_i^T + b_i,  z_0 with one more row of E_0 and b_0 for each cluster i

    with the tables E_i and projections P_i of an `AdaptiveEmbedding`. Called with labels it returns
    the loss of each token without all logits: those of cluster i only for the n_i tokens whose
    label it holds. Time and memory are O(N (V_0 d_0 + sum_i n_i V_i d_i / N)) for N tokens instead
    of O(N V D). Since the shapes of a graph are fixed, up to four times n_i tokens are computed,
    and at least N / 64. Called without labels, it returns the log-probabilities of all words, which
    are logits too, at the cost of a plain softmax. All that follows the products is float32 under
    any dtype policy.

    `keras_attn.losses.LabelSmoothedCrossentropy(0.0)` takes the mean of the losses (B, T), and
    `Perplexity` and `BitsPerCharacter` measure them, in place of logits:

        loss_of_tokens = keras.Model([token_ids, labels], softmax(hidden, labels))  # fit([x, y], y)
        model = keras.Model(token_ids, softmax(hidden))  # generate

    Use it for vocabularies of hundreds of thousands of words, most of them rare.

    Args:
        embedding: an `AdaptiveEmbedding`, whose tables are shared. One that embeds no input makes
            an untied softmax.
        tied_projections: True, False or "all_but_first": which P_i are shared with the embedding.
            There are none with a `div_val` of 1.
        ignore_class: int. Tokens with this label have loss 0.

    Call arguments:
        x: (B, T, D).
        labels: optional int (B, T).

    Returns:
        Log-probabilities (B, T, V), float32; with `labels` the losses -log p(label) (B, T).

    Raises:
        ValueError: if `embedding` is no `AdaptiveEmbedding`, `tied_projections` is unknown, a
            shape does not fit, or, in an eager call, a label is neither `ignore_class` nor in
            [0, V). In a graph the loss of such a label is NaN; TensorFlow's CPU raises an error.

    Example:
        >>> import keras, keras_attn
        >>> embedding = keras_attn.layers.AdaptiveEmbedding(100, 16, cutoffs=[10, 30], div_val=4)
        >>> softmax = keras_attn.layers.AdaptiveSoftmax(embedding)
        >>> x = embedding(keras.ops.array([[5, 27, 99]]))
        >>> softmax(x).shape, softmax(x, keras.ops.array([[27, 99, 3]])).shape
        (TensorShape([1, 3, 100]), TensorShape([1, 3]))

    Differs from the paper: words have biases, as in Transformer-XL, whose authors' code lets the
        clusters' logits be in reversed order.

    Reference: [Grave et al., 2016](https://arxiv.org/abs/1609.04309), section 4; tied:
        [Baevski and Auli, 2018](https://arxiv.org/abs/1809.10853), section 3.2;
        [Dai et al., 2019](https://arxiv.org/abs/1901.02860), section 4.1.
    """

    mixed_arguments = ("tied_projections",)
    weight_axes = {"clusters": (), "bias": (), "projection": ()}

    def __init__(self, embedding, tied_projections=True, ignore_class=0, **kwargs):
        super().__init__(**kwargs)
        embedding = registry.revive(embedding)
        if not isinstance(embedding, AdaptiveEmbedding):
            raise ValueError(
                f"`embedding` must be an `AdaptiveEmbedding`. Received: embedding={embedding!r}."
            )
        check_choice((True, False, "all_but_first"), tied_projections=tied_projections)
        self.embedding = embedding
        self.tied_projections = tied_projections
        self.ignore_class = ignore_class

    def build(self, x_shape, labels_shape=None):
        embedding = self.embedding
        registry.build_once(embedding, x_shape)
        own = {True: 0, False: None, "all_but_first": 1}[self.tied_projections]
        self.projections = embedding.make_projections(self, own)
        sizes = [end - first for first, end in embedding.bounds]
        clusters = len(sizes) - 1
        if clusters:
            initializer = embedding.table_initializer()
            shape = (clusters, embedding.hidden_dim)
            self.cluster_table = self.add_weight(shape, initializer, name="clusters")
        sizes[0] += clusters
        self.biases = [
            self.add_weight((size,), "zeros", autocast=False, name=f"bias_{i}")
            for i, size in enumerate(sizes)
        ]

    def call(self, x, labels=None):
        check_shape(x, "x", (*x.shape[:-1], self.embedding.hidden_dim))
        rows, unflatten = flatten_rows(x)
        clusters = self.embedding.bounds, _logits, self._weights()
        if labels is None:
            return unflatten(cluster_log_probabilities(rows, *clusters))
        labels = ops.convert_to_tensor(narrow(labels))
        check_shape(labels, "labels", tuple(x.shape[:-1]))
        words = ops.cast(known_labels(labels, self.ignore_class), "int32")
        count = self.embedding.vocabulary_size
        is_known = check_labels(words, count, self.ignore_class, "labels")
        words = ops.where(words < 0, count, words)  # no cluster has it either
        losses = cluster_losses(rows, ops.reshape(words, (-1,)), *clusters)
        losses = ops.where(is_known, ops.reshape(losses, ops.shape(labels)), float("nan"))
        return ops.where(token_weights(labels, self.ignore_class) > 0, losses, 0.0)

    def _all_projections(self):
        """Return the projection of each cluster that has one: its own, or the embedding's."""
        return [*self.projections, *self.embedding.projections[len(self.projections) :]]

    def _weights(self):
        """Return for each cluster its table, its biases and, if there is one, its projection."""
        dtype = self.compute_dtype
        tables = [ops.cast(table, dtype) for table in self.embedding.tables]
        if len(tables) > 1:
            tables[0] = ops.concatenate([tables[0], ops.cast(self.cluster_table, dtype)], axis=0)
        weights = [[table, ops.cast(bias, "float32")] for table, bias in zip(tables, self.biases)]
        for parts, projection in zip(weights, self._all_projections()):
            parts.append(ops.cast(projection, dtype))
        return weights

    def call_products(self, output_shape, x, labels=None):
        """Return the multiply-adds of all logits of `x`, the most that its losses can take."""
        first, *others = [math.prod(table.shape) for table in self.embedding.tables]
        clusters = math.prod(self.cluster_table.shape) if others else 0
        projection_sizes = [math.prod(p.shape) for p in self._all_projections()]
        sizes = [first, *others, clusters, *projection_sizes]
        return math.prod(x[:-1]) * sum(sizes)

    def compute_output_spec(self, x, labels=None):
        last = () if labels is not None else (self.embedding.vocabulary_size,)
        return keras.KerasTensor((*x.shape[:-1], *last), dtype="float32")


def _logits(x, table, bias, projection=None):
    """Return the logits (M, words) of states (M, D)."""
    if projection is not None:
        x = ops.matmul(x, ops.transpose(projection))
    return ops.cast(ops.matmul(x, ops.transpose(table)), "float32") + bias


def cluster_losses(hidden, labels, bounds, logits_of, weights):
    """Return -log p(label), float32 (N,), with p(w) = p_head(w) or p_head(cluster) p_cluster(w).

    The logits of a further cluster are computed for its own tokens, or up to four times as many,
    and again in the backward pass; under XLA with a dynamic N, for all tokens.

    Args:
        hidden: float tensor (N, D). labels: int32 (N,).
        bounds: list of (first, end) of each cluster's words; the words of the first, and after them
            one logit for each further cluster, are the head.
        logits_of: function from (M, D) and the tensors of a cluster to its logits (M, words).
        weights: list of tuples, the tensors of each cluster.
    """
    cluster = sum(ops.cast(labels >= first, "int32") for first, _ in bounds) - 1
    place = ops.where(cluster > 0, bounds[0][1] + cluster - 1, labels)
    losses = crossentropy(place, logits_of(hidden, *weights[0]))
    order, _ = sort_order(cluster)
    start = ops.sum(ops.cast(cluster == 0, "int32"))
    for index in range(1, len(bounds)):
        count = ops.sum(ops.cast(cluster == index, "int32"))
        words = labels - bounds[index][0]
        losses += _tail_losses(hidden, words, order, start, count, logits_of, weights[index])
        start += count
    return losses


def _tail_losses(hidden, words, order, start, count, logits_of, weights):
    """Return losses (N,) of the tokens order[start : start + count], zero at all others."""
    total = size(hidden, 0)

    def within(length):
        def losses(hidden, *weights):
            rank = ops.arange(length, dtype="int32")
            is_one = rank < count
            token = ops.take(order, ops.where(is_one, rank + start, 0))
            word = ops.where(is_one, ops.take(words, token), 0)
            token_losses = crossentropy(word, logits_of(ops.take(hidden, token, axis=0), *weights))
            return ops.scatter(
                ops.expand_dims(token, 1), ops.where(is_one, token_losses, 0.0), (total,)
            )

        # Without remat XLA would reserve memory for the logits of all branches.
        return lambda: keras.remat(losses)(hidden, *weights)

    if not can_branch((hidden, words)):
        return within(total)()
    lengths = [ceil_div(total, part) for part in PARTS]
    ways = [lambda: ops.zeros((total,), "float32"), *map(within, lengths)]
    return switch(sum(ops.cast(count > most, "int32") for most in (0, *lengths[:-1])), ways)


def cluster_log_probabilities(hidden, bounds, logits_of, weights):
    """Return log p(w) of every word w, float32 (N, V); arguments as in `cluster_losses`."""
    words = bounds[0][1]
    head = ops.log_softmax(ops.cast(logits_of(hidden, *weights[0]), "float32"))
    parts = [head[:, :words]]
    for index in range(1, len(bounds)):
        tail = ops.log_softmax(ops.cast(logits_of(hidden, *weights[index]), "float32"))
        parts.append(head[:, words + index - 1 : words + index] + tail)
    return ops.concatenate(parts, axis=-1)
