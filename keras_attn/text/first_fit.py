"""Packing of items into rows, by the number of items of each kind."""

import bisect

import numpy as np


class FirstFit:
    """Rows of items by first fit: the longest kind first, each item into the first row with space.

    Rows of the same content are neighbours, and are kept as one interval. So memory grows with the
    number of kinds, not with that of the items; time is O(kinds x intervals).

    Args:
        sizes: int (C, K), the lengths of C kinds in K dimensions.
        counts: int (C,), how many items there are of each.
        capacity: int. The length of a row in each dimension.

    Attributes:
        num_rows: int.
    """

    def __init__(self, sizes, counts, capacity):
        self.num_rows = 0
        starts, free = np.empty(0, np.int64), np.empty((0, sizes.shape[1]), np.int64)
        taken = []  # of each kind: first row, row after the last, items a row, first item
        for kind in np.lexsort((*sizes.T, sizes.max(axis=1)))[::-1].tolist():
            size, count = sizes[kind], int(counts[kind])
            fitting = (free // size).min(axis=1)
            numbers = np.diff(starts, append=self.num_rows)
            more = -(-max(count - int((numbers * fitting).sum()), 0) // (capacity // size).min())
            if more:
                starts = np.append(starts, self.num_rows)
                numbers = np.append(numbers, more)
                free = np.concatenate([free, np.full((1, len(size)), capacity)])
                fitting = np.append(fitting, (capacity // size).min())
                self.num_rows += int(more)
            before = np.cumsum(numbers * fitting) - numbers * fitting
            starts, free, each = _divided(starts, free, fitting, before, numbers, count)
            free = free - each[:, None] * size
            numbers = np.diff(starts, append=self.num_rows)
            begins = np.cumsum(numbers * each) - numbers * each
            for n in np.flatnonzero(each).tolist():
                rows = int(starts[n]), int(starts[n] + numbers[n])
                taken.append((kind, *rows, int(each[n]), int(begins[n])))
        found = [[] for _ in starts]  # items of the rows of an interval: kind, number, step a row
        for kind, first, stop, each, begin in taken:
            items = [(kind, begin - first * each + item, each) for item in range(each)]
            for interval in range(*np.searchsorted(starts, [first, stop]).tolist()):
                found[interval] += items
        self._starts, self._found = starts.tolist(), [np.array(items).T for items in found]

    def row(self, index):
        """Return the items of a row, the longest first: their kinds, and numbers in the kind."""
        kinds, numbers, steps = self._found[bisect.bisect_right(self._starts, index) - 1]
        return kinds, numbers + index * steps


def _divided(starts, free, fitting, before, numbers, count):
    """Divide the interval in which the items end; return intervals and the items of their rows."""
    each = np.where(before < count, fitting, 0)
    for last in np.flatnonzero((each > 0) & (before + numbers * fitting > count)).tolist():
        rows, rest = divmod(count - int(before[last]), int(fitting[last]))
        parts = [(starts[last], fitting[last])] if rows else []
        parts += [(starts[last] + rows, rest)] if rest else []
        after = rows + (rest > 0)
        parts += [(starts[last] + after, 0)] if after < numbers[last] else []
        cut = [slice(None, last), slice(last + 1, None)]
        starts, each = (
            np.concatenate([old[cut[0]], [part[n] for part in parts], old[cut[1]]])
            for n, old in enumerate((starts, each))
        )
        free = np.concatenate(
            [free[cut[0]], np.repeat(free[last : last + 1], len(parts), 0), free[cut[1]]]
        )
    return starts, free, each
