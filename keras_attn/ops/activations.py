"""Activations: by name, and those that Keras offers only as options of another one."""

import inspect
import math

import keras
from keras import ops

from keras_attn.hints import did_you_mean
from keras_attn.registry import register

# Gated layers of the literature, which are no activations, and the activation of their gates.
_GATED = {
    "bilinear": "linear",
    "geglu": "gelu",
    "glu": "sigmoid",
    "reglu": "relu",
    "swiglu": "silu",
}


def get_activation(identifier):
    """Return the function for a name, a config or a function, as `keras.activations.get` does."""
    name = identifier.lower() if isinstance(identifier, str) else None
    if name in _GATED:
        raise ValueError(
            f"{identifier} is a gated layer, `GatedFeedForward(activation={_GATED[name]!r})`, not "
            f"an activation. Received: activation={identifier!r}."
        )
    try:
        return keras.activations.get(identifier)
    except ValueError as error:
        known = {n for n, _ in inspect.getmembers(keras.activations, inspect.isfunction)}
        hint = did_you_mean(identifier, known - _GATED.keys())
        raise ValueError(
            f"`activation` must be a function or a name of `keras.activations`.{hint} "
            f"Received: activation={identifier!r}."
        ) from error


def activate(activation, x):
    """Return `activation(x)`, the exact GELU as x (1 + erf(x / sqrt 2)) / 2.

    Keras computes it by erfc, which takes twice as long on TensorFlow and which neither LiteRT nor
    tf2onnx knows, but which is more exact in 16 bits.
    """
    is_exact = keras.backend.standardize_dtype(x.dtype) in ("float32", "float64")
    if activation is keras.activations.gelu and is_exact:
        return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))
    return activation(x)


@register
def gelu_tanh(x):
    """Compute the GELU by its tanh approximation, which ONNX converters support."""
    return keras.activations.gelu(x, approximate=True)


@register
def gelu_sigmoid(x):
    """Compute the GELU by its sigmoid approximation, x sigmoid(1.702 x)."""
    return x * keras.activations.sigmoid(1.702 * x)
