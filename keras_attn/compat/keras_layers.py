"""All layers inside a layer.

Private: `keras.layers.Layer._flatten_layers`. Holds for Keras 3.15, which keras_attn requires.
Upstream: https://github.com/keras-team/keras/blob/master/keras/src/layers/layer.py
Remove when Keras has a public, recursive list of sublayers: `keras.Model.layers` lists one level of
a model only.
"""


def flatten_layers(layer):
    """Return `layer` and all layers inside it, each once, as a list."""
    return layer._flatten_layers()
