"""The files that the command line is given, with words of their own for those that do not fit."""

import contextlib
import os
import zipfile
import zlib

# What a whole file has, by Keras's format.
_PARTS = {"config.json", "metadata.json", "model.weights.h5"}


def check_files(model, tokenizer=None):
    """Looks at the files before anything slow is done.

    Args:
        model: path.
        tokenizer: path, or None.

    Raises:
        ValueError: if a file is missing, or the model's is not whole.
    """
    if not os.path.exists(model):
        raise ValueError(f"There is no such file of a model. Received: {model!r}.")
    if not _is_whole(model):
        raise ValueError(
            "The model's file is no whole .keras file: it is cut, damaged or of another kind. "
            f"Received: {model!r}, of {os.path.getsize(model):,} bytes."
        )
    if tokenizer is not None and not os.path.isfile(tokenizer):
        raise ValueError(f"There is no such file for --tokenizer. Received: {tokenizer!r}.")


def load_model(path):
    """The Keras model in a file.

    Raises:
        ValueError: if it cannot be loaded.
    """
    import keras

    try:
        return keras.models.load_model(path)
    except (KeyError, OSError, RuntimeError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"The model cannot be loaded. Received: {path!r}: {reason}") from error


def load_tokenizer(path):
    """The tokenizer in a file; None for None.

    Raises:
        ValueError: if the file holds none.
    """
    from keras_attn import text

    if path is None:
        return None
    try:
        return text.load(path)
    except ValueError as error:
        raise ValueError(f"The file for --tokenizer holds no tokenizer: {error}") from error


def _is_whole(path):
    if os.path.isdir(path) or not path.endswith(".keras"):
        return True  # Keras knows other forms
    with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as file:
        return _PARTS <= set(file.namelist())
    return False
