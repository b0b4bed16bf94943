"""Commands of `python -m keras_attn.convert`; each returns the exit status."""

import os

import keras

from keras_attn.convert.golden import write_golden
from keras_attn.convert.hugging_face.conversion import from_hugging_face
from keras_attn.convert.hugging_face.writing import to_hugging_face


def convert(folder, path, export=None):
    """Convert a folder to a `.keras` file, and write a SavedModel if `export` is a path."""
    if not path.endswith(".keras"):
        raise ValueError(f"The file to write must end in .keras. Received: {path!r}.")
    model, tokenizer = from_hugging_face(folder)
    model.save(path)
    print(f"{path}: {type(model).__name__} of {model.count_params():,} weights")
    if export is not None:
        from keras_attn.export import saved_model  # needs TensorFlow, unlike the conversion

        limit = getattr(model, "max_length", None)
        length = {} if limit is None else {"max_length": min(limit, 64)}
        print(saved_model(model, export, tokenizer=tokenizer, **length))
    return 0


def write_golden_outputs(folder):
    """Write the outputs of transformers into a checkpoint's folder."""
    print(write_golden(folder))
    return 0


def write_folder(path, folder):
    """Convert a `.keras` file to a folder of Hugging Face."""
    if not path.endswith(".keras") or not os.path.isfile(path):
        raise ValueError(f"The file to read must be there and end in .keras. Received: {path!r}.")
    print(f"{folder}: a checkpoint of {to_hugging_face(keras.models.load_model(path), folder)}")
    return 0
