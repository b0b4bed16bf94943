"""Activations that Keras has only as an option of another."""

import keras

from keras_attn.registry import register


@register
def gelu_tanh(x):
    """The Gaussian error linear unit by its tanh approximation, which ONNX converters know."""
    return keras.activations.gelu(x, approximate=True)


@register
def gelu_sigmoid(x):
    """The Gaussian error linear unit by its sigmoid approximation, x sigmoid(1.702 x)."""
    return x * keras.activations.sigmoid(1.702 * x)
