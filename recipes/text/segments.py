"""Segments and windows of a text, as batches for training and evaluation."""

import numpy as np

from keras_attn import text
from keras_attn.text import Permutation
from keras_attn.text.batches.datasets import RowBatches, Rows
from keras_attn.text.batches.segment_streams import shifted


def make_segments(ids, options, steps=None, in_order=True):
    """Return `steps` batches of segments of a text an epoch; by default all, in their order.

    A model with a memory reads the segments in their order; the input `reset` is true where a text
    begins. A model without reads them in a random order: consecutive segments are similar, and a
    small batch of them estimates the gradient poorly.
    """
    if not in_order:
        return ShuffledSegments(ids, options.context, options.batch_size, steps, options.seed)
    streams = text.SegmentStreams(ids, options.batch_size, options.context)
    return EndlessStreams(streams, steps or len(streams))


def make_validation(ids, options, has_memory):
    """Return the batches of a validation: segments for a model with a memory, else windows."""
    ids = ids.part(0, max(options.valid_tokens, options.batch_size + 1))
    if has_memory:
        return make_segments(ids, options)
    return StridedWindows(ids, options.context, options.context, options.batch_size)


class EndlessStreams(RowBatches):
    """Epochs of segment streams of a text that is read over and over.

    Args:
        streams: a `keras_attn.text.SegmentStreams`.
        steps: int. Batches of an epoch.
    """

    def __init__(self, streams, steps):
        self._streams, self._steps = streams, steps

    def __len__(self):
        return self._steps

    def batch(self, epoch, index, rows=Rows()):
        place = (epoch * self._steps + index) % len(self._streams)
        return self._streams.batch(place, rows)


class ShuffledSegments(RowBatches):
    """Epochs of segments of a text, in a random order for each pass over it.

        segment k = x_{kT} ... x_{kT+T-1},   targets x_{kT+1} ... x_{kT+T}

    Each token but the first is a target once a pass. A row is a function of the seed and of its
    number since the start, whatever the epochs; nothing but the rows is in memory.

    Args:
        ids: `TokenFiles` or int array.
        context: int. T.
        batch_size: int.
        steps: int. Batches of an epoch.
        seed: int.
    """

    def __init__(self, ids, context, batch_size, steps, seed):
        self._ids, self._context, self._batch_size = ids, context, batch_size
        self._steps, self._seed = steps, seed
        self._num_segments = -(-(len(ids) - 1) // context)

    def __len__(self):
        return self._steps

    def batch(self, epoch, index, rows=Rows()):
        places = rows.of(self._batch_size)
        real_rows = range(self._batch_size)[places.start : places.stop]
        first = (epoch * self._steps + index) * self._batch_size
        starts = [self._context * place for place in self._places(first, real_rows)]
        tokens = [self._ids[start : start + self._context + 1] for start in starts]
        tokens += [()] * (len(places) - len(real_rows))
        token_ids, targets = shifted(tokens, self._context)
        return {"token_ids": token_ids}, targets

    def _places(self, first, rows):
        """Return the segment of each row; a batch may end one pass and begin the next."""
        number = np.array([first + row for row in rows], np.int64)
        passes, places = np.divmod(number, self._num_segments)
        real_rows = [
            Permutation(self._num_segments, [self._seed, int(n)])(places[passes == n])
            for n in np.unique(passes)
        ]
        return np.concatenate([np.empty(0, np.int64), *real_rows]).tolist()


class StridedWindows(RowBatches):
    """Overlapping windows of a text, in each of which only the last tokens are targets.

        token_ids_k = x_{ks} ... x_{ks+T-1}
        targets_k = x_{ks+1} ... x_{ks+T}, 0 but for the last s

    In the first window all tokens are targets, so each token but the first is predicted once; after
    that window from at least T - s + 1 tokens: a longer stride is faster, a shorter one predicts
    better. Models without a memory are tested so (Al-Rfou et al., 2018; a stride of 1). The last
    rows and windows are padded with 0.

    Args:
        ids: `TokenFiles` or int array (n,), n >= 2.
        context: int. T.
        stride: int. s <= T.
        batch_size: int.
    """

    def __init__(self, ids, context, stride, batch_size):
        self._ids = ids
        self._context, self._stride, self._batch_size = context, stride, batch_size
        self._num_windows = 1 + max(0, -(-(len(ids) - 1 - context) // stride))

    def __len__(self):
        return -(-self._num_windows // self._batch_size)

    def batch(self, epoch, index, rows=Rows()):
        places = rows.of(self._batch_size)
        tokens, targets = np.zeros((2, len(places), self._context), np.int32)
        first = index * self._batch_size
        for row, place in enumerate(places[: max(self._batch_size - places.start, 0)]):
            start = (first + place) * self._stride
            if first + place < self._num_windows:
                part = self._ids[start : start + self._context + 1]
                tokens[row, : len(part) - 1] = part[:-1]
                seen = self._context - self._stride if start else 0
                targets[row, seen : len(part) - 1] = part[seen + 1 :]
        return {"token_ids": tokens}, targets
