"""A list of arrays in one file that is whole or not there."""

import contextlib
import os

import numpy as np

PARTIAL = ".partial"  # the end of the name of a file that is being written


def write_arrays(path, arrays, **numbers):
    """Writes `arrays` and the named integers to `path`, which until the last moment keeps what it
    held before: a process killed while writing loses nothing that was written earlier."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    partial = path + PARTIAL
    try:
        with open(partial, "wb") as file:
            np.savez(file, *map(_storable, arrays), **numbers, arrays=len(arrays))
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(partial)
        raise


def read_arrays(path, remedy="delete it, or restore it from a copy"):
    """The arrays and the dictionary of named integers that `write_arrays` wrote to `path`.

    Raises:
        ValueError: if the file is damaged, with the `remedy`. Every array carries a checksum, so
            that a changed byte is found as surely as a missing end.
    """
    with open(path, "rb") as file:
        try:
            with np.load(file) as archive:
                names = [name for name in archive.files if name.startswith("arr_")]
                arrays = [archive[f"arr_{index}"] for index in range(len(names))]
                numbers = {name: int(archive[name]) for name in set(archive.files) - set(names)}
            # A changed length in the table at the end may hide what follows in it.
            if numbers.pop("arrays", len(arrays)) != len(arrays):
                raise ValueError(f"{len(arrays)} arrays, of more")
        except Exception as error:  # a damaged archive fails in a dozen ways
            raise ValueError(
                f"The file {path} is damaged and cannot be read; {remedy}. "
                f"Received: {type(error).__name__}: {error}"
            ) from error
    return arrays, numbers


def _storable(array):
    array = np.asarray(array)
    # NumPy's file format has no bfloat16, which float32 holds exactly.
    return array.astype("float32") if array.dtype.name == "bfloat16" else array
