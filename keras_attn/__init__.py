"""Every Transformer of the Transformer-family papers, as small Keras layers that snap together."""

import importlib

from keras_attn import depth, layers, memory, models, patterns, positions, residuals, scores

__version__ = "0.1.0"

# Above the core, and each with optional packages of its own: imported when first used.
_ROOMS = ("convert", "export", "generation", "testing", "text", "training", "viz")

__all__ = [
    "depth",
    "layers",
    "memory",
    "models",
    "patterns",
    "positions",
    "residuals",
    "scores",
    *_ROOMS,
]


def __getattr__(name):
    if name in _ROOMS:
        return importlib.import_module(f"keras_attn.{name}")
    raise AttributeError(f"module 'keras_attn' has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
