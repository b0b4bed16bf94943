"""The optional packages of tokenizers."""

import importlib

from keras_attn.text.rows import tf


def load_sentencepiece():
    """Return the package sentencepiece; its models also need TensorFlow's operations."""
    if tf is not None:
        load_tensorflow_text()
    return _load("sentencepiece")


def load_tensorflow_text():
    """Return the package tensorflow_text."""
    return _load("tensorflow_text")


def load_regex():
    """Return the package regex."""
    return _load("regex")


def _load(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"This tokenizer needs the package {name.replace('_', '-')}: "
            "pip install 'keras_attn[text]'"
        ) from error
