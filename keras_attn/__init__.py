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
from keras_attn.text.tokenizers import layer as _registered  # noqa: F401  (files refer to it)

__version__ = "0.2.0"

# Packages that are imported on first use: `.keras` files refer to nothing in them but the layer of
# a tokenizer, which is imported above.
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
