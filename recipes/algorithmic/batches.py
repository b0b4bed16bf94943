"""Batches to train on, without end, and to be tested on."""

import numpy as np

from ..text.tokens import FIRST_ID
from .held_out import draw
from .parity import parity
from .sequences import SHORTEST, TASKS

_BOS, _EOS = 2, 3
# What a batch is for, as part of its seed.
TRAIN, VALID, TEST = range(3)


class Batches:
    """Examples of one task, each batch a function of the seed and its number.

    Args:
        task: str.
        train_length: int. The longest in training; lengths are drawn uniformly.
        longest: int. The longest in any test; so wide are all rows.
        batch_size: int.
        max_offset: int. The most positions that a training row begins late.
        seed: int.
    """

    def __init__(self, task, train_length, longest, batch_size, max_offset, seed):
        self.task, self.batch_size = task, batch_size
        self.shortest = SHORTEST.get(task, 1)
        self._train_length, self._longest = train_length, longest
        self._max_offset, self._seed = max_offset, seed

    def training(self, steps):
        """Epochs of so many batches, one going on where the other ended."""
        return _Epochs(steps, lambda epoch, index: self._batch(epoch * steps + index))

    def validation(self, steps):
        """Batches of trained lengths, held out and without offsets."""
        return _Epochs(steps, lambda _, index: self.as_arrays(self._mixed(VALID, index, True)))

    def of_length(self, length, number):
        """Up to so many different test examples of one length, fewer if fewer are held out."""
        random = np.random.default_rng((self._seed, TEST, length))
        drawn = draw(lambda n: self._make(random, np.full(n, length)), number, held_out=True)
        _, first = np.unique(drawn[0], axis=0, return_index=True)
        return type(drawn)(*(array[np.sort(first)] for array in drawn))

    def as_arrays(self, examples, offsets=None):
        """Inputs and labels of examples."""
        if self.task == "parity":
            return examples.inputs, examples.labels[:, None].astype("float32")
        return with_marks(examples, offsets, self._max_offset)

    def _mixed(self, purpose, index, held_out):
        random = np.random.default_rng((self._seed, purpose, index))

        def make(number):
            lengths = random.integers(self.shortest, self._train_length + 1, number)
            return self._make(random, lengths)

        return draw(make, self.batch_size, held_out)

    def _batch(self, index):
        random = np.random.default_rng((self._seed, TRAIN, index, 1))
        offsets = random.integers(0, self._max_offset + 1, self.batch_size)
        return self.as_arrays(self._mixed(TRAIN, index, False), offsets)

    def _make(self, random, lengths):
        make = parity if self.task == "parity" else TASKS[self.task]
        return make(random, lengths, self._longest)


class _Epochs:
    """Of each epoch so many batches that a function gives."""

    def __init__(self, steps, batch):
        self._steps, self.batch = steps, batch

    def __len__(self):
        return self._steps


def with_marks(sequences, offsets=None, max_offset=0):
    """Token ids as an `EncoderDecoder` reads them: source + eos, bos + target, target + eos.

    A row with an offset has so many zeros before its source and as many before its target. Zeros
    are padding, to which nothing attends, but they count as positions: the row is read as if it
    stood so far behind in a longer one.
    """
    sources, targets = sequences
    number, width = sources.shape
    offsets = np.zeros(number, int) if offsets is None else offsets
    source_ids, target_ids, labels = np.zeros((3, number, width + 1 + max_offset), "int32")
    for ids, symbols in ((source_ids, sources), (labels, targets)):
        rows, places = np.nonzero(symbols >= 0)
        ids[rows, places + offsets[rows]] = symbols[rows, places] + FIRST_ID
        ids[np.arange(number), offsets + np.sum(symbols >= 0, axis=1)] = _EOS
    target_ids[:, 1:] = np.where(labels[:, :-1] == _EOS, 0, labels[:, :-1])
    target_ids[np.arange(number), offsets] = _BOS
    return {"source_ids": source_ids, "target_ids": target_ids}, labels
