"""Activations that Keras offers only as options of another one."""

import keras

from keras_attn.registry import register


@register
def gelu_tanh(x):
    """Compute the GELU by its tanh approximation, which ONNX converters support."""
    return keras.activations.gelu(x, approximate=True)


@register
def gelu_sigmoid(x):
    """Compute the GELU by its sigmoid approximation, x sigmoid(1.702 x)."""
    return x * keras.activations.sigmoid(1.702 * x)
