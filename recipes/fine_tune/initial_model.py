"""The model that a run begins with, and its tokenizer."""

import os
import zipfile

import keras

from keras_attn import convert, text

from ..text.corpus import train_on_sentences
from .model_changes import change_model

TOKENIZER = "tokenizer.model"  # of a run


def load_or_build(task, texts):
    """Return the model of `--model`, changed by the options, and its tokenizer.

    Without `--model` the model is a new one, and its tokenizer is trained on the `texts`.

    Raises:
        ValueError: if there is no such model, it has no tokenizer, or the two do not fit.
    """
    options = task.options
    if options.model is None:
        tokenizer = _tokenizer_of_run(options) or _train(texts, options.vocabulary_size)
        sizes = {**options.sizes(), "max_length": options.max_length}
        return change_model(task.new_model(tokenizer.vocabulary_size, **sizes), options), tokenizer
    model, tokenizer = _load(options.model)
    tokenizer = _read_tokenizer(options, tokenizer)
    if not isinstance(model, task.kinds) or getattr(model, "image_shape", None) is not None:
        kinds = " or ".join(kind.__name__ for kind in task.kinds)
        raise ValueError(
            f"--task {options.task} needs a --model of texts of the class {kinds}. "
            f"Received: {options.model} of the class {type(model).__name__}."
        )
    known = model.embedding.vocabulary_size
    if tokenizer.vocabulary_size > known:
        raise ValueError(
            "The tokenizer must have no more tokens than the model. "
            f"Received: {tokenizer.vocabulary_size} tokens, and {known} rows in the model's table."
        )
    has_padding = model.pad_id is not None or not task.reads_padding
    return change_model(model, options, None if has_padding else tokenizer.fill_id), tokenizer


def _tokenizer_of_run(options):
    """Return the tokenizer that a run to be resumed has trained; None for a new run."""
    path = os.path.join(options.out, TOKENIZER)
    return text.load(path) if os.path.exists(path) else None


def _train(texts, vocabulary_size):
    lines = [line for part in texts for line in part.split("\n")]
    return train_on_sentences(lines, "bpe", vocabulary_size)


def _load(path):
    """Return a model, and its tokenizer if it is in a folder of Hugging Face."""
    if os.path.isdir(path):
        return convert.from_hugging_face(path)
    try:
        return keras.models.load_model(path, compile=False), None
    except (KeyError, OSError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(f"--model: {path} holds no model: {error}") from error


def _read_tokenizer(options, folder_tokenizer):
    """Return the tokenizer of `--model`; `folder_tokenizer` is that of a folder, or None."""
    beside = os.path.join(os.path.dirname(options.model), TOKENIZER)
    if options.tokenizer:
        return text.load(options.tokenizer)
    if folder_tokenizer is not None:
        return folder_tokenizer
    if os.path.isdir(options.model):
        raise ValueError(
            f"The folder {options.model} has no tokenizer that an export can hold; "
            "give the file of one that has its ids, by --tokenizer."
        )
    if not os.path.exists(beside):
        raise ValueError(f"There is no {beside}; give --tokenizer FILE.")
    return text.load(beside)
