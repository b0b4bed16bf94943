"""Many files of numbers as one array."""

import bisect
import itertools

import numpy as np


class ArrayFiles:
    """Numbers in many files as one array, of which nothing is kept in memory.

    Args:
        files: list of `CheckedFile`s.
        dtype: str. Of the numbers in the files, such as "<u2".
        result: str. dtype of the arrays that slices give.
        start, stop: ints. The part of all numbers that is the array; all of them by default.
    """

    def __init__(self, files, dtype, result, start=0, stop=None):
        self._files, self._dtype, self._result = files, np.dtype(dtype), result
        self._ends = [*itertools.accumulate(file.size // self._dtype.itemsize for file in files)]
        whole = self._ends[-1] if files else 0
        self._start, self._stop = start, whole if stop is None else stop

    def __len__(self):
        return self._stop - self._start

    def __getitem__(self, cut):
        if not isinstance(cut, slice):
            place = range(len(self))[cut]
            return self[place : place + 1][0]
        start, stop, step = cut.indices(len(self))
        if step != 1:
            raise ValueError(f"Slices of files must have step 1. Received: step={step}.")
        parts = [*self._parts(self._start + start, self._start + stop)]
        found = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, self._dtype), *parts])
        return found.astype(self._result)

    def part(self, start, stop):
        """Return the same as `[start:stop]`, without reading it."""
        start, stop, _ = slice(start, stop).indices(len(self))
        first = self._start
        stop = max(start, stop)
        return ArrayFiles(self._files, self._dtype, self._result, first + start, first + stop)

    def _parts(self, start, stop):
        index = bisect.bisect_right(self._ends, start)
        while start < stop:
            first = self._ends[index - 1] if index else 0
            end = min(stop, self._ends[index])
            if start < end:  # else the file is empty
                places = ((place - first) * self._dtype.itemsize for place in (start, end))
                yield np.frombuffer(self._files[index].read(*places), self._dtype)
            start, index = end, index + 1
