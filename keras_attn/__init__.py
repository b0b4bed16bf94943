"""Every Transformer of the Transformer-family papers as small Keras 3 layers that compose."""

import importlib

from keras_attn import (
    costs,
    depth,
    feed_forward,
    generation,
    layers,
    losses,
    memory,
    metrics,
    models,
    norms,
    optimizers,
    patterns,
    positions,
    residuals,
    scores,
)
from keras_attn.costs import explain

__version__ = "0.2.0"

# Packages that no `.keras` file refers to are imported on first use.
_LAZY = ("callbacks", "convert", "distribution", "export", "testing", "text", "viz")

__all__ = [
    "costs",
    "depth",
    "explain",
    "feed_forward",
    "generation",
    "layers",
    "losses",
    "memory",
    "metrics",
    "models",
    "norms",
    "optimizers",
    "patterns",
    "positions",
    "residuals",
    "scores",
    *_LAZY,
]


def __getattr__(name):
    if name in __all__:
        return importlib.import_module(f"keras_attn.{name}")
    raise AttributeError(f"module 'keras_attn' has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
