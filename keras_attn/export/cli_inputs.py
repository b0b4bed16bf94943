"""Input files of the command line: checks before slow work, and errors in one sentence."""

import contextlib
import os
import zipfile
import zlib

import keras

from keras_attn import text

# Members of a complete file in Keras's format.
_KERAS_MEMBERS = {"config.json", "metadata.json", "model.weights.h5"}


def check_files(model, tokenizer=None):
    """Check that the input files exist and are complete, without loading them.

    Args:
        model: path.
        tokenizer: path, or None.

    Raises:
        ValueError: if a file is missing, or the model's file is incomplete.
    """
    if not os.path.exists(model):
        raise ValueError(f"The model's file does not exist. Received: {model!r}.")
    if not _is_complete(model):
        raise ValueError(
            "The model's file is not a complete .keras file: it is truncated, damaged or has "
            f"another format. Received: {model!r}, of {os.path.getsize(model):,} bytes."
        )
    if tokenizer is not None and not os.path.isfile(tokenizer):
        raise ValueError(f"The file for --tokenizer does not exist. Received: {tokenizer!r}.")


def load_model(path):
    """Load the Keras model in a file.

    Raises:
        ValueError: if it cannot be loaded.
    """
    try:
        return keras.models.load_model(path)
    except (KeyError, OSError, RuntimeError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"The model cannot be loaded. Received: {path!r}: {reason}") from error


def load_tokenizer(path):
    """Load the tokenizer in a file; None for None.

    Raises:
        ValueError: if the file does not hold a tokenizer.
    """
    if path is None:
        return None
    try:
        return text.load(path)
    except ValueError as error:
        raise ValueError(f"The file for --tokenizer does not hold a tokenizer: {error}") from error


def _is_complete(path):
    if os.path.isdir(path) or not path.endswith(".keras"):
        return True  # Keras loads other formats too
    with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as file:
        return _KERAS_MEMBERS <= set(file.namelist())
    return False
