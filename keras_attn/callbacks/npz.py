"""Lists of arrays in .npz files that are complete or absent."""

import numpy as np

from keras_attn.ops.atomic_files import atomic_file


def write_arrays(path, arrays, **numbers):
    """Write arrays and named integers to `path`, which keeps its earlier content until the end."""
    with atomic_file(path) as temporary:
        np.savez(temporary, *map(_storable, arrays), **numbers, arrays=len(arrays))


def read_arrays(path, remedy="delete it, or restore it from a copy"):
    """Read the arrays and the dict of named integers that `write_arrays` wrote to `path`.

    A damaged file raises an error with the `remedy`. Every array carries a checksum, so a changed
    byte is detected as surely as a missing end.
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
