"""Segments and windows of a text, as batches for training and evaluation."""

import numpy as np

from keras_attn import text


def make_segments(ids, options, steps=None, in_order=True):
    """Return `steps` segments of a text an epoch; by default all of them, in their order."""
    streams = text.SegmentStreams(ids, options.batch_size, options.context)
    return EndlessSegments(streams, steps or len(streams), in_order, options.seed)


def make_validation(ids, options, has_memory):
    """Return the batches of a validation: segments for a model with a memory, else windows."""
    ids = ids[: max(options.valid_tokens, options.batch_size + 1)]
    if has_memory:
        return make_segments(ids, options)
    return StridedWindows(ids, options.context, options.context, options.batch_size)


class EndlessSegments:
    """Epochs of segments of a text that is read over and over.

    A model with a memory reads the segments in their order; the input `reset` is true where a text
    begins. A model without reads them in a random order for each pass: consecutive segments are
    similar, and a small batch of them estimates the gradient poorly.

    Args:
        streams: a `keras_attn.text.SegmentStreams`.
        steps: int. Batches of an epoch.
        in_order: bool. True for a model with a memory.
        seed: int. Seed of the order.
    """

    def __init__(self, streams, steps, in_order, seed):
        self._streams, self._steps, self._in_order, self._seed = streams, steps, in_order, seed

    def __len__(self):
        return self._steps

    def batch(self, epoch, index):
        number, place = divmod(epoch * self._steps + index, len(self._streams))
        if self._in_order:
            return self._streams.batch(place)
        order = np.random.default_rng([self._seed, number]).permutation(len(self._streams))
        inputs, labels = self._streams.batch(order[place])
        return {"token_ids": inputs["token_ids"]}, labels


class StridedWindows:
    """Overlapping windows of a text, in each of which only the last tokens are targets.

        token_ids_k = x_{ks} ... x_{ks+T-1}
        targets_k = x_{ks+1} ... x_{ks+T}, 0 but for the last s

    In the first window all tokens are targets, so each token but the first is predicted once, from
    at least T - s + 1 tokens: a longer stride is faster, a shorter one predicts better. Models
    without a memory are tested so (Al-Rfou et al., 2018; a stride of 1). The last rows and windows
    are padded with 0.

    Args:
        ids: int array (n,), n >= 2.
        context: int. T.
        stride: int. s <= T.
        batch_size: int.
    """

    def __init__(self, ids, context, stride, batch_size):
        self._ids = np.asarray(ids, np.int32)
        self._context, self._stride, self._batch_size = context, stride, batch_size
        self._num_windows = 1 + max(0, -(-(len(ids) - 1 - context) // stride))

    def __len__(self):
        return -(-self._num_windows // self._batch_size)

    def batch(self, epoch, index):
        tokens, targets = np.zeros((2, self._batch_size, self._context), np.int32)
        first = index * self._batch_size
        for row in range(min(self._batch_size, self._num_windows - first)):
            start = (first + row) * self._stride
            part = self._ids[start : start + self._context + 1]
            tokens[row, : len(part) - 1] = part[:-1]
            seen = self._context - self._stride if start else 0
            targets[row, seen : len(part) - 1] = part[seen + 1 :]
        return {"token_ids": tokens}, targets
