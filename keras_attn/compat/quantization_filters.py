"""The filters of `keras.Model.quantize`.

Private: `should_quantize_layer` of `keras.src.quantizers.utils`. Holds for Keras 3.15, which
keras_attn requires.
Upstream: https://github.com/keras-team/keras/blob/master/keras/src/models/model.py
Remove when `keras.Model.quantize` reaches layers that have layers inside.
"""

from keras.src.quantizers.utils import should_quantize_layer


def passes_filters(layer, filters):
    """Return True if `keras.Model.quantize` quantizes a layer with these `filters`."""
    return should_quantize_layer(layer, filters)
