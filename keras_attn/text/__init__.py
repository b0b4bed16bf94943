"""Tokenizers, and batches of their tokens.

Names are resolved on first use: importing `keras_attn.text` costs nothing, and batches need neither
SentencePiece nor TensorFlow Text.
"""

import importlib

_MODULES = {
    "ByteLevelBPE": "tokenizers.byte_level_bpe",
    "Characters": "tokenizers.characters",
    "Manifest": "corpus.manifest",
    "Marian": "tokenizers.marian",
    "PackedBatches": "batches.packed_batches",
    "Permutation": "batches.permutation",
    "SegmentStreams": "batches.segment_streams",
    "SentencePiece": "tokenizers.sentencepiece",
    "Template": "tokenizers.template",
    "TokenBatches": "batches.token_batches",
    "TokenFiles": "corpus.token_files",
    "TokenWriter": "corpus.token_writer",
    "Tokenizer": "tokenizers.tokenizer",
    "WordPiece": "tokenizers.wordpiece",
}

__all__ = [*_MODULES, "load"]


def load(path):
    """Load the tokenizer that its `save` wrote to the file `path`.

    Args:
        path: str. The file.

    Returns:
        A `Tokenizer`.

    Raises:
        ValueError: if there is no such file, or it holds no tokenizer.

    Example:
        >>> import os, tempfile
        >>> from keras_attn import text
        >>> path = os.path.join(tempfile.mkdtemp(), "tokenizers.tokenizer")
        >>> text.Characters("abc").save(path)
        >>> text.load(path).vocabulary_size
        7
    """
    from keras_attn.text.tokenizers.tokenizer import read_file

    content = read_file(path)
    return _class_of(content).load(path)


def from_bytes(content):
    """Return the `Tokenizer` of the content of a file that its `save` wrote."""
    return _class_of(content).from_bytes(content)


def _class_of(content):
    """Return the class of the tokenizer that a file's content holds."""
    from keras_attn.text.tokenizers.vocabularies import class_name_of

    # A vocabulary of characters is a JSON object without a class; a SentencePiece model begins with
    # the tag of its first piece, which is no brace.
    name = class_name_of(content)
    if name not in ("ByteLevelBPE", "Marian", "SentencePiece", "WordPiece"):
        name = "Characters" if content.startswith(b"{") else "SentencePiece"
    return __getattr__(name)


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value  # the next use is a plain attribute; pdoc lists those only
    return value


def __dir__():
    return __all__
