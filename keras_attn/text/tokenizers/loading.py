"""The class of a tokenizer whose file is read, and the tokenizer of a file's content."""

import importlib

from keras_attn.text.tokenizers.template import Template
from keras_attn.text.tokenizers.vocabularies import class_name_of

# Imported on use: a class reads its package, and the layer of a tokenizer is below all classes.
_MODULES = {
    "AddedTokens": "added_tokens",
    "ByteLevelBPE": "byte_level_bpe",
    "Bytes": "byte_values",
    "Characters": "characters",
    "Marian": "marian",
    "Metaspace": "metaspace",
    "SentencePiece": "sentencepiece",
    "SentenceTokenizer": "sentence_tokenizer",
    "WordPiece": "wordpiece",
}


def from_bytes(content, changes=None):
    """Return the `Tokenizer` of the content of a file that its `save` wrote.

    Args:
        content: bytes.
        changes: dict that `changed_attributes` gave; of a template it may hold the fields.
    """
    tokenizer = class_of(content).from_bytes(content)
    for name, value in (changes or {}).items():
        setattr(tokenizer, name, Template.of(value) if name == "template" else value)
    return tokenizer


def class_of(content):
    """Return the class of the tokenizer that a file's content holds."""
    # A vocabulary of characters is a JSON object without a class; a SentencePiece model begins with
    # the tag of its first piece, which is no brace.
    name = class_name_of(content)
    if name not in _MODULES or name == "Characters":
        name = "Characters" if content.startswith(b"{") else "SentencePiece"
    return getattr(importlib.import_module(f"keras_attn.text.tokenizers.{_MODULES[name]}"), name)
