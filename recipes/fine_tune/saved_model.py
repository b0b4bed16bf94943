"""The model that a run begins with, and its tokenizer."""

import os
import zipfile

import keras

from keras_attn import convert, text
from keras_attn.convert.hugging_face.tokenizer import read_tokenizer

from ..text.corpus import train_on_sentences
from .vary import vary

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
        return vary(task.new_model(tokenizer.vocabulary_size, **sizes), options), tokenizer
    model, tokenizer = _load(options.model), _read_tokenizer(options)
    if not isinstance(model, task.kinds) or getattr(model, "image_shape", None) is not None:
        kinds = " or ".join(kind.__name__ for kind in task.kinds)
        raise ValueError(
            f"--model must be a {kinds} of texts for --task {options.task}. "
            f"Received: {options.model} with a {type(model).__name__}."
        )
    known = model.embedding.vocabulary_size
    if tokenizer.vocabulary_size > known:
        raise ValueError(
            "The tokenizer must have no more tokens than the model. "
            f"Received: {tokenizer.vocabulary_size} tokens, and {known} rows in the model's table."
        )
    return vary(model, options), tokenizer


def _tokenizer_of_run(options):
    """Return the tokenizer that a run to be resumed has trained; None for a new run."""
    path = os.path.join(options.out, TOKENIZER)
    return text.load(path) if os.path.exists(path) else None


def _train(texts, vocabulary_size):
    lines = [line for part in texts for line in part.split("\n")]
    return train_on_sentences(lines, "bpe", vocabulary_size)


def _load(path):
    if os.path.isdir(path):
        return convert.from_hugging_face(path)[0]
    if not os.path.isfile(path):
        raise ValueError(
            f"--model must be a folder of Hugging Face or a .keras file, and {path} does not exist."
        )
    try:
        return keras.models.load_model(path, compile=False)
    except (KeyError, OSError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(f"--model: {path} holds no model: {error}") from error


def _read_tokenizer(options):
    """Return the tokenizer of `--model`."""
    if options.tokenizer:
        return text.load(options.tokenizer)
    if not os.path.isdir(options.model):
        path = os.path.join(os.path.dirname(options.model), TOKENIZER)
        if not os.path.exists(path):
            raise ValueError(f"There is no {path}; give --tokenizer FILE.")
        return text.load(path)
    tokenizer = read_tokenizer(options.model)
    if tokenizer is None:
        raise ValueError(
            f"The tokenizer in {options.model} cannot be part of an export; "
            "give the file of another one that has its ids, by --tokenizer."
        )
    return tokenizer
