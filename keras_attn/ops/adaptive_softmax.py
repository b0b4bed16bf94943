"""Adaptive softmax: words in clusters, and the loss of a token from a part of the logits."""

import keras
from keras import ops

from keras_attn.backend.operations import can_branch
from keras_attn.ops.shapes import ceil_div, size
from keras_attn.ops.sorting import sort_order
from keras_attn.ops.token_losses import crossentropy

# A cluster's logits are computed for a 64th, a 16th, a quarter or all of the tokens. The shapes of
# a graph are fixed when it is built, the number of a cluster's tokens is not: the smallest part
# that holds them is chosen when it runs.
PARTS = (64, 16, 4, 1)


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
            found = crossentropy(word, logits_of(ops.take(hidden, token, axis=0), *weights))
            return ops.scatter(token[:, None], ops.where(is_one, found, 0.0), (total,))

        # Without remat XLA would reserve memory for the logits of all branches.
        return lambda: keras.remat(losses)(hidden, *weights)

    if not can_branch((hidden, words)):
        return within(total)()
    lengths = [ceil_div(total, part) for part in PARTS]
    ways = [lambda: ops.zeros((total,), "float32"), *map(within, lengths)]
    return ops.switch(sum(ops.cast(count > most, "int32") for most in (0, *lengths[:-1])), ways)


def cluster_log_probabilities(hidden, bounds, logits_of, weights):
    """Return log p(w) of every word w, float32 (N, V); arguments as in `cluster_losses`."""
    words = bounds[0][1]
    head = ops.log_softmax(ops.cast(logits_of(hidden, *weights[0]), "float32"))
    parts = [head[:, :words]]
    for index in range(1, len(bounds)):
        tail = ops.log_softmax(ops.cast(logits_of(hidden, *weights[index]), "float32"))
        parts.append(head[:, words + index - 1 : words + index] + tail)
    return ops.concatenate(parts, axis=-1)
