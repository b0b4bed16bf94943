"""Sentences in lists, as batches read them."""

import numpy as np


class PairLists:
    """Pairs of texts in two lists, or the texts of one, of which item i is a tuple of its sides.

    Args:
        *sides: lists of int arrays of the same number.
    """

    def __init__(self, *sides):
        self._sides = sides
        self._lengths = np.array([[*map(len, side)] for side in sides], np.int64).T
        self.sides = len(sides)

    def __len__(self):
        return len(self._sides[0])

    def item(self, index):
        """Return the sides of an item."""
        return tuple([side[index] for side in self._sides])  # faster than of a generator

    def lengths(self, start, stop):
        """Return the number of tokens of each side of items, int64 (n, sides)."""
        return self._lengths[start:stop]
