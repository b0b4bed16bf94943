"""Lists of arrays in .npz files that are complete or absent."""

import contextlib
import json

import numpy as np

from keras_attn.files import atomic_file

DELETE = "delete it, or restore it from a copy"


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
