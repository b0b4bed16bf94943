"""The layers inside a layer.

Keras has no public way to list the nested layers of a layer that is not a model: `Layer.layers` is
of `keras.Model` only. Holds for Keras 3.5 to 3.13. Can be removed once Keras publishes such a list:
https://github.com/keras-team/keras/issues (search "_flatten_layers").
"""


def flatten_layers(layer):
    """Return a layer and all layers inside it, depth first."""
    return list(layer._flatten_layers())
