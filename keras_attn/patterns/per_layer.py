"""The pattern of each layer of a model."""

import keras

from keras_attn import registry


def pattern_of(pattern, index):
    """Return the pattern of the layer at `index`: of a function its value, else the pattern.

    A pattern with weights is copied, so that each layer has its own.
    """
    if isinstance(pattern, keras.layers.Layer):
        return registry.copy(pattern)
    return pattern(index) if callable(pattern) else pattern
