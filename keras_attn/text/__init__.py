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

    Args:
        path: str. The file.

    Returns:
        A `Tokenizer`.

    Raises:
        ValueError: if there is no such file, or it holds neither.

    Example:
        >>> import os, tempfile
        >>> from keras_attn import text
        >>> path = os.path.join(tempfile.mkdtemp(), "tokenizer")
        >>> text.Characters("abc").save(path)
        >>> text.load(path).vocabulary_size
        7
    """
    from keras_attn.text.tokenizer import read_file

    # A vocabulary of characters is a JSON object; a SentencePiece model begins with the tag of its
    # first piece, which is no brace.
    name = "Characters" if read_file(path).startswith(b"{") else "SentencePiece"
    return __getattr__(name).load(path)


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value  # the next use is a plain attribute; pdoc lists those only
    return value


def __dir__():
    return __all__
