"""A softmax over words in clusters: the loss of each token from a part of the logits."""

import keras
from keras import ops

from keras_attn.backend.operations import can_branch
from keras_attn.ops.crossentropy import crossentropy
from keras_attn.ops.shapes import ceil_div, size
from keras_attn.ops.sorting import sort_order

# The parts of all tokens that a cluster's logits may be made for. The shapes of a graph are fixed
# while it is built and the number of a cluster's tokens is not: the smallest that holds them is
# chosen as it runs.
PARTS = (64, 16, 4, 1)


def cluster_losses(hidden, labels, bounds, logits_of, weights):
    """-log p(label) with p(w) = p_head(w), or p_head(cluster) p_cluster(w), each a softmax.

    Args:
        hidden: float tensor (N, D).
        labels: int32 (N,).
        bounds: list of (first, end) of each cluster's words; the words of the first, and after them
            one logit for each further cluster, are the head.
        logits_of: function from (M, D) and the tensors of a cluster to its logits (M, words).
        weights: list of tuples, the tensors of each cluster.

    Returns:
        float32 (N,), in the order of the labels. The logits of a further cluster are made for its
        own tokens only, or up to four times as many, and again in the backward pass; by XLA, unless
        it is told N, for all tokens.
    """
    cluster = sum(ops.cast(labels >= first, "int32") for first, _ in bounds) - 1
    place = ops.where(cluster > 0, bounds[0][1] + cluster - 1, labels)
    losses = crossentropy(place, logits_of(hidden, *weights[0]))
    if len(bounds) == 1:
        return losses
    order, _ = sort_order(cluster)
    start = ops.sum(ops.cast(cluster == 0, "int32"))
    for index in range(1, len(bounds)):
        count = ops.sum(ops.cast(cluster == index, "int32"))
        words = labels - bounds[index][0]
        losses += _tail_losses(hidden, words, order, start, count, logits_of, weights[index])
        start += count
    return losses


def _tail_losses(hidden, words, order, start, count, logits_of, weights):
    """The losses (N,) of the tokens order[start : start + count], zero at all others."""
    total = size(hidden, 0)

    def within(length):
        def losses(hidden, *weights):
            is_one = ops.arange(length, dtype="int32") < count
            token = ops.where(is_one, ops.arange(length, dtype="int32") + start, 0)
            token = ops.take(order, token)
            word = ops.where(is_one, ops.take(words, token), 0)
            found = crossentropy(word, logits_of(ops.take(hidden, token, axis=0), *weights))
            return ops.scatter(token[:, None], ops.where(is_one, found, 0.0), (total,))

        # Made again in the backward pass: XLA would else keep room for the logits of all ways.
        return lambda: keras.remat(losses)(hidden, *weights)

    if not can_branch((hidden, words)):
        return within(total)()
    lengths = [ceil_div(total, part) for part in PARTS]
    ways = [lambda: ops.zeros((total,), "float32"), *map(within, lengths)]
    return ops.switch(sum(ops.cast(count > most, "int32") for most in (0, *lengths[:-1])), ways)


def cluster_log_probabilities(hidden, bounds, logits_of, weights):
    """log p(w) of every word w in their order, float32 (N, V); the arguments as above."""
    words = bounds[0][1]
    head = ops.log_softmax(ops.cast(logits_of(hidden, *weights[0]), "float32"))
    parts = [head[:, :words]]
    for index in range(1, len(bounds)):
        tail = ops.log_softmax(ops.cast(logits_of(hidden, *weights[index]), "float32"))
        parts.append(head[:, words + index - 1 : words + index] + tail)
    return ops.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0]
