"""Directories for CTranslate2."""

from keras_attn.export._ctranslate2.conversion import ctranslate2

__all__ = ["ctranslate2"]
