"""Batches to train on and to be tested on."""

import numpy as np


class EndlessSegments:
    """Epochs of so many steps, one going on where the other ended, of a text read over and over.

    A model with a memory reads the segments in their order and hears where a text begins (`reset`).
    One without reads them in an order that is drawn for each pass: what follows one another is
    alike, and of a small batch a poor estimate of the gradient.

    Args:
        streams: a `keras_attn.text.SegmentStreams`.
        steps: int. Batches of an epoch.
        remembers: bool. Whether the model has a memory.
        seed: int. Of the order.
    """

    def __init__(self, streams, steps, remembers, seed):
        self._streams, self._steps, self._remembers, self._seed = streams, steps, remembers, seed

    def __len__(self):
        return self._steps

    def batch(self, epoch, index):
        number, place = divmod(epoch * self._steps + index, len(self._streams))
        if self._remembers:
            return self._streams.batch(place)
        order = np.random.default_rng([self._seed, number]).permutation(len(self._streams))
        inputs, labels = self._streams.batch(order[place])
        return {"token_ids": inputs["token_ids"]}, labels


class Windows:
    """Windows of a text that move by a stride, in each of which only what is new is a target.

        token_ids_k = x_{ks} ... x_{ks+T-1},  targets_k = x_{ks+1} ... x_{ks+T}, 0 but for the last s

    Of the first window all are targets, so that each token but the first of all is predicted once,
    from T - s + 1 tokens or more: the longer the stride the faster, the shorter the better the
    prediction. That is how a model without a memory is tested (Al-Rfou et al., 2018; a stride of
    1). Rows and windows that the text does not fill end in padding, 0.

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
