"""Every Transformer of the Transformer-family papers, as small Keras layers that snap together."""

import importlib

from keras_attn import (
    depth,
    generation,
    layers,
    memory,
    models,
    patterns,
    positions,
    residuals,
    scores,
    training,
)

__version__ = "0.1.0"

# Each with optional packages of its own: imported when first used. What a `.keras` file may name is
# in the other rooms, which are imported at once.
_ROOMS = ("convert", "export", "testing", "text", "viz")

__all__ = [
    "depth",
    "generation",
    "layers",
    "memory",
    "models",
    "patterns",
    "positions",
    "residuals",
    "scores",
    "training",
    *_ROOMS,
]


def __getattr__(name):
    if name in _ROOMS:
        return importlib.import_module(f"keras_attn.{name}")
    raise AttributeError(f"module 'keras_attn' has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
