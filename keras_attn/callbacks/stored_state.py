"""Variables in the files of one checkpoint, of which any part can be read."""

import contextlib
import math

import numpy as np

from keras_attn.callbacks.npz import DELETE, ArraysFile


def index_of(values):
    """Return the arrays to write and the index that says where they belong.

    Args:
        values: list of (shape, parts), one a variable: parts is a dict from a box, a tuple of
            (start, stop) for each axis or None for all of the variable, to the array in it.

    Returns:
        The list of arrays, and a dict as JSON holds it: the shapes of all variables, and for each
        array the number of its variable and its box.
    """
    arrays, boxes = [], []
    for number, (shape, parts) in enumerate(values):
        for box, array in parts.items():
            arrays.append(array)
            boxes.append([number, whole_box(shape) if box is None else box])
    return arrays, {"shapes": [list(shape) for shape, _ in values], "boxes": boxes}


def whole_box(shape):
    """Return the box of all of a variable."""
    return tuple((0, size) for size in shape)


class StoredState(contextlib.ExitStack):
    """The variables in the files of one checkpoint, open until the end of a `with`.

    A file without an index holds all variables whole, and all of them are in memory. Files with one
    hold parts, and all files of the checkpoint together each variable whole: then a part costs to
    read what the stored parts that it overlaps cost, and one variable is in memory at a time.

    Args:
        paths: list of the files, those to prefer first.
        remedy: str. What to do about a damaged file, the end of the error.

    Attributes:
        shapes: list of the shapes of all variables.
        numbers: dict of the named integers, which all files have alike.

    Raises:
        ValueError: if a file is damaged, the files do not belong together, or a part is missing.
    """

    def __init__(self, paths, remedy=DELETE):
        super().__init__()
        self._remedy, self._first = remedy, paths[0]
        self._boxes = []  # of each variable, a dict from a box to (file, its array's number)
        self._read = {}  # arrays of the variable that was read last
        try:
            files = [self.enter_context(ArraysFile(path, remedy)) for path in paths]
            self.numbers = files[0].numbers
            if files[0].index is None:
                self._take_whole(files[0])
            else:
                self._take_parts(files)
        except BaseException:
            self.close()
            raise

    def read(self, number, box=None):
        """Return the array in a box of a variable, by default all of the variable."""
        box = whole_box(self.shapes[number]) if box is None else box
        if box in self._boxes[number]:
            return self._array(number, box)
        found, filled = None, 0
        for stored in self._boxes[number]:
            common = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, stored)]
            size = _size(common)
            if size:
                array = self._array(number, stored)
                found = np.empty(_shape(box), array.dtype) if found is None else found
                found[_slices(common, box)] = array[_slices(common, stored)]
                filled += size
        if not _size(box) and self._boxes[number]:
            stored = next(iter(self._boxes[number]))
            return np.empty(_shape(box), self._array(number, stored).dtype)
        if found is None or filled != _size(box):
            raise ValueError(
                f"The checkpoint of {self._first} lacks a part of a variable, since one of its "
                f"files was replaced by another; {self._remedy}. Received: {filled} of the "
                f"{_size(box)} numbers in the box {box} of variable {number}"
            )
        return found

    def _take_whole(self, file):
        arrays = [file.array(number) for number in range(file.count)]
        self.shapes = [array.shape for array in arrays]
        self._boxes = [{whole_box(shape): None} for shape in self.shapes]
        self._array = lambda number, box: arrays[number]

    def _take_parts(self, files):
        self.shapes = [tuple(shape) for shape in files[0].index["shapes"]]
        self._boxes = [{} for _ in self.shapes]
        for file in files:
            index = file.index or {}
            if (index.get("shapes"), file.numbers) != (files[0].index["shapes"], self.numbers):
                raise ValueError(
                    f"The files {self._first} and {file.path} are not of one checkpoint; "
                    f"{self._remedy}. Received: {self.numbers} and {file.numbers}"
                )
            for place, (number, box) in enumerate(index["boxes"]):
                self._boxes[number].setdefault(tuple(map(tuple, box)), (file, place))

    def _array(self, number, box):
        file, place = self._boxes[number][box]
        if (number, box) not in self._read:
            if any(other != number for other, _ in self._read):
                self._read.clear()
            self._read[number, box] = file.array(place)
        return self._read[number, box]


def _size(box):
    return math.prod(_shape(box))


def _shape(box):
    return [max(0, stop - start) for start, stop in box]


def _slices(box, origin):
    return tuple(slice(a - start, b - start) for (a, b), (start, _) in zip(box, origin))
