"""Graves' parity: whether an odd number of the ones among some numbers are positive."""

from typing import NamedTuple

import numpy as np


class Vectors(NamedTuple):
    """Rows of signs, as 1 for +1 and 0 for -1, -1 behind the last; and whether +1 is odd."""

    signs: np.ndarray
    labels: np.ndarray

    @property
    def inputs(self):
        """(B, 1, width), one vector a sequence: 1, -1, and 0 behind the last."""
        return np.where(self.signs < 0, 0, 2 * self.signs - 1)[:, None].astype("float32")


def parity(random, lengths, width):
    """Vectors of which the first so many numbers are 1 or -1, the others 0."""
    signs = random.integers(0, 2, (len(lengths), width))
    signs = np.where(np.arange(width) < lengths[:, None], signs, -1)
    return Vectors(signs, np.sum(signs == 1, axis=1) % 2)
