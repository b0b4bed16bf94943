"""Batches for training, validation and tests, and the examples that are held out."""

import numpy as np

from ..text.tokens import FIRST_ID
from .tasks import SHORTEST, TASKS

_BOS, _EOS = 2, 3
# Purpose of a batch, as part of its seed.
TRAIN, VALID, TEST = range(3)


class Batches:
    """Examples of one task; a batch is a function of the seed and its number.

    Args:
        task: str.
        train_length: int. The longest in training; lengths are drawn uniformly.
        longest: int. The longest in any test, and the width of all rows.
        batch_size: int.
        max_offset: int. The most padding before a training row.
        seed: int.
        curriculum_steps: int. Training batches in which the longest length grows from the shortest
            to `train_length`; each has as many of them.
    """

    def __init__(
        self, task, train_length, longest, batch_size, max_offset, seed, curriculum_steps=0
    ):
        self.task, self.batch_size = task, batch_size
        self.shortest = SHORTEST[task]
        self._train_length, self._longest = train_length, longest
        self._max_offset, self._seed = max_offset, seed
        self._curriculum_steps = curriculum_steps

    def training(self, steps):
        """Return epochs of `steps` batches, each continuing where the last one ended."""
        return _FunctionBatches(steps, lambda epoch, index: self._batch(epoch * steps + index))

    def validation(self, steps):
        """Return batches of trained lengths, held out and without offsets."""
        return _FunctionBatches(
            steps, lambda _, index: self.as_arrays(self.draw(VALID, index, held_out=True))
        )

    def of_length(self, length, number):
        """Return up to `number` different test examples of one length, of those held out."""
        random = np.random.default_rng((self._seed, TEST, length))
        drawn = draw_examples(
            lambda n: self._make(random, np.full(n, length)), number, held_out=True
        )
        _, first = np.unique(drawn[0], axis=0, return_index=True)
        return type(drawn)(*(array[np.sort(first)] for array in drawn))

    def as_arrays(self, examples, offsets=None):
        """Return inputs and labels of examples."""
        if self.task == "parity":
            return examples.inputs, examples.labels[:, None].astype("float32")
        return with_marks(examples, offsets, self._max_offset)

    def draw(self, purpose, index, held_out, limit=None):
        """Draw a batch of examples of trained lengths, or of those up to `limit`."""
        random = np.random.default_rng((self._seed, purpose, index))
        limit = self._train_length if limit is None else limit

        def make(number):
            lengths = random.integers(self.shortest, limit + 1, number)
            return self._make(random, lengths)

        return draw_examples(make, self.batch_size, held_out)

    def _batch(self, index):
        random = np.random.default_rng((self._seed, TRAIN, index, 1))
        offsets = random.integers(0, self._max_offset + 1, self.batch_size)
        examples = self.draw(TRAIN, index, held_out=False, limit=self._limit(index))
        return self.as_arrays(examples, offsets)

    def _limit(self, index):
        """Return the longest length of a training batch."""
        if index >= self._curriculum_steps:
            return self._train_length
        num_lengths = self._train_length - self.shortest + 1
        return self.shortest + num_lengths * index // self._curriculum_steps

    def _make(self, random, lengths):
        return TASKS[self.task](random, lengths, self._longest)


class _FunctionBatches:
    """Epochs of batches that a function (epoch, index) returns."""

    def __init__(self, steps, batch):
        self._steps, self.batch = steps, batch

    def __len__(self):
        return self._steps


def with_marks(sequences, offsets=None, max_offset=0):
    """Return token ids of an `EncoderDecoder`: source + eos, bos + target, target + eos.

    A row with an offset has so many zeros before its source and before its target. Nothing attends
    to zeros, but they count as positions: the model learns positions that a longer row has.
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


# One example in ten is never trained on.
ONE_IN = 10
_ROUNDS = 200


def is_held_out(rows):
    """Return for rows (B, width) of integers >= 0, padded with -1, whether they are held out.

    The row itself decides, so that no training batch holds a test example.
    """
    hashed = np.zeros(len(rows), np.uint64)
    for column in np.transpose(rows):
        added = np.maximum(column, 0).astype(np.uint64) + np.uint64(1)
        hashed = np.where(column >= 0, _mix_bits(hashed + added), hashed)
    return hashed % np.uint64(ONE_IN) == 0


def draw_examples(make, number, held_out):
    """Draw examples of those that are held out, or of the others, fewer if there are too few.

    `make` draws as many as it is asked for: a tuple of arrays, the first for `is_held_out`.
    """
    blocks, count = [], 0
    for _ in range(_ROUNDS):
        arrays = make(number)
        right = is_held_out(arrays[0]) == held_out
        blocks.append([array[right] for array in arrays])
        count += int(right.sum())
        if count >= number:
            break
    return type(arrays)(*(np.concatenate(parts)[:number] for parts in zip(*blocks, strict=True)))


def _mix_bits(hashed):
    """Apply the finalizer of splitmix64."""
    hashed = (hashed ^ (hashed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashed = (hashed ^ (hashed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashed ^ (hashed >> np.uint64(31))
