"""Every Transformer of the Transformer-family papers as small Keras 3 layers that compose."""

import importlib
import typing

from keras_attn import programs

__version__ = "0.2.0"

# Packages that are imported on first use: `.keras` files refer to nothing in them but the layer of
# a tokenizer, which is imported below.
_LAZY = ("callbacks", "convert", "distribution", "export", "testing", "text", "viz")

__all__ = [
    "callbacks",
    "convert",
    "costs",
    "depth",
    "distribution",
    "explain",
    "export",
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
    "testing",
    "text",
    "viz",
]

if typing.TYPE_CHECKING:  # for editors
    from keras_attn import callbacks, convert, distribution, export, testing, text, viz

if not programs.is_running():
    # Imported here and not on first use, so that Keras knows all classes of a `.keras` file.
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
    from keras_attn.text.tokenizers import layer as _registered  # noqa: F401


def import_parts():
    """Import all that `import keras_attn` imports, where a program of this package runs."""
    for name in __all__:
        if name not in _LAZY:
            __getattr__(name)
    importlib.import_module("keras_attn.text.tokenizers.layer")


def __getattr__(name):
    if name == "explain":
        return importlib.import_module("keras_attn.costs").explain
    if name in __all__:
        return importlib.import_module(f"keras_attn.{name}")
    raise AttributeError(f"module 'keras_attn' has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
