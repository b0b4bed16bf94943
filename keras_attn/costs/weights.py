"""Weights of a layer that no layer inside it has."""

from keras_attn.compat.keras_layers import flatten_layers


def own_weights(layer):
    """Return the weights of a layer that belong to no layer inside it."""
    others = {id(w) for other in flatten_layers(layer) if other is not layer for w in other.weights}
    return [w for w in layer.weights if id(w) not in others]


def own_kernels(layer):
    """Return the matrices of a layer by which its inputs are multiplied."""
    return [w for w in own_weights(layer) if w.name.endswith("kernel") and len(w.shape) > 1]
