"""Tokenizers, and batches of their tokens.

Names are resolved on first use: importing `keras_attn.text` costs nothing, and batches need neither
SentencePiece nor TensorFlow Text.
"""

import importlib

_MODULES = {
    "Characters": "characters",
    "PackedBatches": "packed_batches",
    "SegmentStreams": "segment_streams",
    "SentencePiece": "sentencepiece",
    "TokenBatches": "batches",
    "Tokenizer": "tokenizer",
}

__all__ = [*_MODULES, "load"]


def load(path):
    """Load the `SentencePiece` or `Characters` that its `save` wrote to the file `path`.

    Raises:
        ValueError: if there is no such file, or it holds neither.
    """
    from keras_attn.text.tokenizer import read_file

    # A vocabulary of characters is a JSON object; a SentencePiece model begins with the tag of its
    # first piece, which is no brace.
    name = "Characters" if read_file(path).startswith(b"{") else "SentencePiece"
    return __getattr__(name).load(path)


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__():
    return __all__
