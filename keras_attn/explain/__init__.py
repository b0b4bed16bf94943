"""Costs of a model before it runs."""

import importlib

from keras_attn.explain.explain_model import explain

__all__ = ["Explanation", "LayerCost", "MemoryCost", "Reach", "explain"]


def __getattr__(name):
    if name in __all__:
        return getattr(importlib.import_module("keras_attn.explain.explanation"), name)
    raise AttributeError(f"module 'keras_attn.explain' has no attribute {name!r}")
