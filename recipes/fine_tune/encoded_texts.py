"""Texts as rows of ids of different lengths, and batches of them."""

from typing import NamedTuple

import numpy as np


class EncodedTexts(NamedTuple):
    """Inputs (N, T) by name, their lengths (N,), targets (N,) or (N, ...), and weights (N,)."""

    inputs: dict
    lengths: np.ndarray
    targets: np.ndarray
    weights: np.ndarray

    @property
    def nbytes(self):
        return sum(array.nbytes for array in (*self.inputs.values(), self.targets, self.weights))


def encode(tokenizer, examples, model, max_length):
    """Return the inputs of a model for all texts, a dict of arrays (N, T), and their lengths.

    Ids beyond a row's length are the model's padding.
    """
    segments = []
    if examples.second_texts is None:
        ids, lengths = tokenizer.encode(examples.texts, max_length)
    else:
        pairs = examples.texts, examples.second_texts
        ids, lengths, *segments = tokenizer.encode_pair(*pairs, max_length)
    ids, lengths = np.asarray(ids), np.asarray(lengths)
    is_real = np.arange(ids.shape[1]) < lengths[:, None]
    inputs = {"token_ids": np.where(is_real, ids, model.pad_id or 0).astype("int32")}
    if segments and "segment_ids" in model.input:
        inputs["segment_ids"] = np.asarray(segments[0])
    return inputs, lengths


class TextBatches:
    """Batches of rows, each as wide as the longest row in it.

    Args:
        rows: an `EncodedTexts`.
        batch_size: int.
        seed: int. Each epoch has an order of its own; None for the order of the rows.
        cuts_targets: bool. False for targets (N, ...) whose second axis is not that of the tokens.
    """

    def __init__(self, rows, batch_size, seed=None, cuts_targets=True):
        self.rows, self._batch_size, self._seed = rows, batch_size, seed
        self._cuts_targets = cuts_targets and rows.targets.ndim > 1
        self._epoch, self._order = None, np.arange(len(rows.lengths))

    def __len__(self):
        return -(-len(self._order) // self._batch_size)

    def batch(self, epoch, index):
        """Return inputs, targets and weights."""
        if self._seed is not None and epoch != self._epoch:
            generator = np.random.default_rng([self._seed, epoch])
            self._epoch, self._order = epoch, generator.permutation(len(self._order))
        rows = self._order[index * self._batch_size : (index + 1) * self._batch_size]
        width = max(1, self.rows.lengths[rows].max())
        inputs = {name: array[rows, :width] for name, array in self.rows.inputs.items()}
        targets = self.rows.targets[rows]
        return (
            inputs,
            targets[:, :width] if self._cuts_targets else targets,
            self.rows.weights[rows],
        )
