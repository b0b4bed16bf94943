"""Tokenizers, and batches of their tokens.

Names are resolved on first use: importing `keras_attn.text` costs nothing, and batches need neither
SentencePiece nor TensorFlow Text.
"""

import importlib

_MODULES = {
    "AddedTokens": "tokenizers.added_tokens",
    "ByteLevelBPE": "tokenizers.byte_level_bpe",
    "Bytes": "tokenizers.byte_values",
    "Characters": "tokenizers.characters",
    "Manifest": "corpus.manifest",
    "Marian": "tokenizers.marian",
    "Metaspace": "tokenizers.metaspace",
    "PackedBatches": "batches.packed_batches",
    "Permutation": "batches.permutation",
    "SegmentStreams": "batches.segment_streams",
    "SentencePiece": "tokenizers.sentencepiece",
    "SentenceTokenizer": "tokenizers.sentence_tokenizer",
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
    from keras_attn.text.tokenizers.loading import class_of
    from keras_attn.text.tokenizers.tokenizer import read_file

    return class_of(read_file(path)).load(path)


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value  # the next use is a plain attribute
    return value


def __dir__():
    return __all__
