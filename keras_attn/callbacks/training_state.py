"""State of training: variables as arrays, and files of which any part can be read."""

import contextlib
import json
import math

import keras
import numpy as np

from keras_attn.backend.replicas import (
    assign_parts,
    held_boxes,
    model_scope,
    numbers_of_processes,
    replicas_of,
    saved_parts,
)
from keras_attn.files import atomic_file
from keras_attn.ops.checks import check_that

DELETE = "delete it, or restore it from a copy"


def training_variables(model):
    """Return all variables of training except metrics: weights, seeds, memories, optimizer."""
    is_ready = model.built and getattr(model, "optimizer", None) is not None
    check_that(is_ready, "built and compiled before it is restored", model=model)
    if not model.optimizer.built:
        with model_scope(model):
            model.optimizer.build(model.trainable_variables)
    return [*model.variables, *model.optimizer.variables]


def read_training_variables(model):
    """Return what this process saves of `training_variables`, as `read_variables` does.

    Replicas share trainable weights and the optimizer's variables: one value is read of each.
    """
    variables = training_variables(model)
    count = len(model.variables)
    is_shared = [v.trainable for v in model.variables] + [True] * (len(variables) - count)
    return read_variables(variables, is_shared)


def read_variables(variables, is_shared=None):
    """Return (shape, parts) of each variable: copies of what this process saves of it.

    `is_shared` says of each whether replicas have one value, by default that they have not.
    """
    values = []
    for variable, shared in zip(variables, is_shared or [False] * len(variables), strict=True):
        parts = saved_parts(variable, shared)
        whole = parts.get(None)
        values.append((tuple(variable.shape) if whole is None else whole.shape, parts))
    return values


def shapes_fit(variables, shapes):
    """Return True if `read_variables` could have returned each shape for its variable."""
    return len(variables) == len(shapes) and all(
        tuple(shape) in (tuple(v.shape), (len(replicas_of(v)), *v.shape))
        for v, shape in zip(variables, shapes)
    )


def read_stored(variables, state):
    """Return the parts of variables that this process holds, from a `StoredState`.

    `state` holds these variables first.
    """
    return [
        {box: state.read(number, box) for box in held_boxes(variable)}
        for number, variable in enumerate(variables)
    ]


@contextlib.contextmanager
def raise_in_all_processes():
    """Raise an error in all processes that share state if the block raises one in any.

    Otherwise the others would train, and wait for it. No process may wait for others in the block.
    """
    failure = None
    try:
        yield
    except Exception as error:
        failure = error
    if any(numbers_of_processes(failure is not None)):
        raise failure or ValueError("Another process cannot use the checkpoints, and says why.")


def assign_all(variables, values):
    """Assign to each variable the parts in `values`."""
    for variable, parts in zip(variables, values, strict=True):
        assign_parts(variable, parts)


def sync_jax_state(model):
    """Write the state that JAX keeps outside the model during an epoch back into the model.

    The next batch takes it from there again. Other backends need nothing.
    """
    if keras.backend.backend() == "jax":
        model.jax_state_sync()


def write_arrays(path, arrays, index=None, **numbers):
    """Write arrays and named integers to `path`, which keeps its earlier content until the end.

    `index` is what JSON can hold, and is written after the arrays that it describes.
    """
    extra = {} if index is None else {"index": np.frombuffer(json.dumps(index).encode(), "uint8")}
    with atomic_file(path) as temporary:
        np.savez(temporary, *map(_storable, arrays), **numbers, arrays=len(arrays), **extra)


def read_arrays(path, remedy=DELETE):
    """Read the arrays and the dict of named integers that `write_arrays` wrote to `path`.

    A damaged file raises an error with the `remedy`. Every array carries a checksum, so a changed
    byte is detected as surely as a missing end.
    """
    with ArraysFile(path, remedy) as file:
        return [file.array(number) for number in range(file.count)], file.numbers


class ArraysFile(contextlib.ExitStack):
    """A file of `write_arrays`, open until the end of a `with`, whose arrays are read one by one.

    Attributes:
        count: the number of arrays.
        numbers: dict of the named integers.
        index: what `write_arrays` was given, or None.
    """

    def __init__(self, path, remedy=DELETE):
        super().__init__()
        self.path, self._remedy = path, remedy
        file = self.enter_context(open(path, "rb"))
        try:
            with self._explain_damage():
                self._archive = self.enter_context(np.load(file))
                self._read_table()
        except BaseException:
            self.close()
            raise

    def array(self, number):
        """Return one array, whose checksum is compared."""
        with self._explain_damage():
            return self._archive[f"arr_{number}"]

    def _read_table(self):
        names = set(self._archive.files)
        arrays = {name for name in names if name.startswith("arr_")}
        texts = names & {"index"}
        self.index = json.loads(self._archive["index"].tobytes()) if texts else None
        self.numbers = {name: int(self._archive[name]) for name in names - arrays - texts}
        # A changed length in the table at the end may hide what follows in it.
        self.count = self.numbers.pop("arrays", len(arrays))
        if self.count != len(arrays):
            raise ValueError(f"{len(arrays)} arrays, of {self.count}")

    @contextlib.contextmanager
    def _explain_damage(self):
        try:
            yield
        except MemoryError:
            raise  # the file may be whole
        except Exception as error:  # a damaged archive fails in a dozen ways
            raise ValueError(
                f"The file {self.path} is damaged and cannot be read; {self._remedy}. "
                f"Received: {type(error).__name__}: {error}"
            ) from error


def _storable(array):
    array = np.asarray(array)
    # NumPy's file format has no bfloat16, which float32 holds exactly.
    return array.astype("float32") if array.dtype.name == "bfloat16" else array


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
        result, filled = None, 0
        for stored in self._boxes[number]:
            common = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, stored)]
            size = _size(common)
            if size:
                array = self._array(number, stored)
                result = np.empty(_shape(box), array.dtype) if result is None else result
                result[_slices(common, box)] = array[_slices(common, stored)]
                filled += size
        if not _size(box) and self._boxes[number]:
            stored = next(iter(self._boxes[number]))
            return np.empty(_shape(box), self._array(number, stored).dtype)
        if result is None or filled != _size(box):
            raise ValueError(
                f"The checkpoint of {self._first} lacks a part of a variable, since one of its "
                f"files was replaced by another; {self._remedy}. Received: {filled} of the "
                f"{_size(box)} numbers in the box {box} of variable {number}"
            )
        return result

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
