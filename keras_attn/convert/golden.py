"""Outputs compared with the other library's: golden ones in a folder are those of transformers."""

import os
import pathlib
import subprocess
import sys
import zipfile

import numpy as np
from keras import ops

from keras_attn.files import atomic_file

FILE = "keras_attn_golden.npz"
# Twelve layers of real weights differ by 1e-5; the smallest mistakes known give 1e-4.
FLOAT32_TOLERANCE = 3e-5
# Largest difference of outputs, relative to the largest output, by the model's compute dtype.
TOLERANCE = {"float16": 2.0**-7, "bfloat16": 2.0**-4}
_WRITER = pathlib.Path(__file__).with_name("golden_writer.py")


def compare_outputs(theirs, ours, compute_dtype, float32_tolerance):
    """Return the largest difference, relative to the largest of `theirs`, and its tolerance."""
    theirs, ours = (ops.convert_to_numpy(ops.cast(x, "float32")) for x in (theirs, ours))
    difference = float(np.max(np.abs(theirs - ours)) / np.max(np.abs(theirs)))
    return difference, TOLERANCE.get(compute_dtype, float32_tolerance)


def write_golden(folder):
    """Compute the outputs of transformers for a checkpoint, and write them into its folder.

    Returns:
        The path of the file.

    Raises:
        ValueError: if there is no such folder, or transformers cannot compute them or is not
            installed.
    """
    if not os.path.isdir(folder):
        raise ValueError(f"There is no folder. Received: folder={os.fspath(folder)!r}.")
    path = os.path.join(folder, FILE)
    with atomic_file(path) as temporary:
        command = [sys.executable, _WRITER, folder, temporary]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise ValueError(
                "The golden outputs need torch and transformers, and a folder that transformers "
                f"reads. Received: folder={os.fspath(folder)!r}, with the error: {last}"
            )
    return path


def check_golden(folder, model):
    """Refuse a model whose outputs differ from the golden outputs in the folder, if it has any."""
    path = pathlib.Path(folder, FILE)
    if not path.is_file():
        return
    received = f"Received: folder={os.fspath(folder)!r}."
    try:
        with np.load(path) as file:
            arrays = dict(file)
        inputs = {k.removeprefix("input_"): v for k, v in arrays.items() if k.startswith("input_")}
        columns, mask, expected = (arrays[name] for name in ("columns", "mask", "outputs"))
    except (KeyError, OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"The file {FILE!r} is cut or damaged: delete it, or write it again. {received}"
        ) from error
    try:
        outputs = model(inputs)
        outputs = outputs["logits"] if isinstance(outputs, dict) else outputs
        difference, tolerance = compare_outputs(
            expected[mask],
            np.array(outputs)[..., columns][mask],
            model.compute_dtype,
            FLOAT32_TOLERANCE,
        )
    except (IndexError, KeyError, ValueError) as error:
        raise ValueError(
            f"The model has other inputs or outputs than those in {FILE!r}: the file or the "
            f"weights belong to another checkpoint. {received}"
        ) from error
    if not difference <= tolerance:
        raise ValueError(
            f"The converted model's outputs differ from those in {FILE!r} by {difference:.2g} of "
            f"the largest, where {tolerance:.2g} is allowed: the file or the weights belong to "
            f"another checkpoint. {received}"
        )
