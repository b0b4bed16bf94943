"""Items in the order of their lengths, and how many there are of each."""

import os
import tempfile

import numpy as np

from keras_attn.text.batches.permutation import IN_MEMORY

_BLOCK = 2**20  # items at a time


class LengthOrder:
    """The numbers of items, such as pairs of texts, sorted by the longest of their sides.

    Items whose sides have the same lengths are a kind. Kinds are sorted by their longest side, then
    by the last side, and so on. It takes memory for the kinds only, a temporary file of 8 bytes an
    item for more than 2**20 items, and O(number of items) time.

    Args:
        items: object with `len()` and `lengths(start, stop)`, int64 (n, sides).

    Attributes:
        sizes: int64 (kinds, sides), the lengths of each kind.
        starts: int64 (kinds + 1,), the place of the first item of each kind.
    """

    def __init__(self, items):
        counts = {}
        for _, keys, numbers in _blocks(items):
            for key, number in zip(keys.tolist(), np.bincount(numbers).tolist(), strict=True):
                counts[key] = counts.get(key, 0) + number
        sides = items.lengths(0, 1).shape[1]
        keys = np.array([*counts], np.int64)
        sizes = np.stack([keys >> 32 * (sides - 1 - side) & 2**32 - 1 for side in range(sides)], 1)
        order = np.lexsort((*sizes.T, sizes.max(axis=1)))
        self.sizes = sizes[order]
        numbers = np.array([*counts.values()], np.int64)[order]
        self.starts = np.concatenate([[0], np.cumsum(numbers)])
        self._file = None
        self._order = self._allocated(len(items))
        self._fill(items, dict(zip(keys[order].tolist(), range(len(keys)), strict=True)))

    def take(self, places):
        """Return the numbers of the items at places of the order."""
        return np.asarray(self._order[places])

    def kinds(self, places):
        """Return the kinds of the items at places of the order."""
        return np.searchsorted(self.starts, places, "right") - 1

    def _allocated(self, number):
        if number <= IN_MEMORY:
            return np.empty(number, np.int64)
        self._file = tempfile.TemporaryFile()
        if hasattr(os, "posix_fallocate"):  # a full disk is an error here, and not a crash later
            os.posix_fallocate(self._file.fileno(), 0, 8 * number)
        self._file.truncate(8 * number)
        return np.memmap(self._file, np.int64, "r+", shape=(number,))

    def _fill(self, items, kind_of):
        filled = self.starts[:-1].copy()
        for start, keys, numbers in _blocks(items):
            kinds = np.array([kind_of[key] for key in keys.tolist()])
            counts = np.bincount(numbers)
            by_kind = np.argsort(numbers, kind="stable")
            before = np.repeat(np.cumsum(counts) - counts, counts)
            places = np.repeat(filled[kinds], counts) + np.arange(len(numbers)) - before
            self._order[places] = start + by_kind
            filled[kinds] += counts


def _blocks(items):
    """Yield the start of a block of items, the keys of its kinds, and the kind of each item."""
    for start in range(0, len(items), _BLOCK):
        lengths = items.lengths(start, min(start + _BLOCK, len(items)))
        key = lengths[:, 0]
        for side in lengths.T[1:]:
            key = key << 32 | side
        yield start, *np.unique(key, return_inverse=True)
