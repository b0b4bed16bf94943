"""Checks of the files of a model and of a tokenizer, without loading them."""

import contextlib
import os
import zipfile

# Members of a complete file in Keras's format.
_KERAS_MEMBERS = {"config.json", "metadata.json", "model.weights.h5"}


def check_files(model, tokenizer=None):
    """Raise a `ValueError` if an input file is missing or incomplete, without loading it."""
    if not os.path.exists(model):
        raise ValueError(f"The model's file does not exist. Received: {model!r}.")
    if not _is_complete(model):
        raise ValueError(
            "The model's file is not a complete .keras file: it is truncated, damaged or has "
            f"another format. Received: {model!r}, of {os.path.getsize(model):,} bytes."
        )
    if tokenizer is not None and not os.path.isfile(tokenizer):
        raise ValueError(f"The file for --tokenizer does not exist. Received: {tokenizer!r}.")


def _is_complete(path):
    if os.path.isdir(path) or not path.endswith(".keras"):
        return True  # Keras loads other formats too
    with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as file:
        return _KERAS_MEMBERS <= set(file.namelist())
    return False
