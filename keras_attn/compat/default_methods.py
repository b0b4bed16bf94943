"""Methods that Keras takes for its own.

Private: `_is_default`, a mark of `keras.layers.Layer.compute_output_shape`: without it Keras infers
masks and dtypes from the shape in place of a trace of `call`. Holds for Keras 3.15, which
keras_attn requires.
Upstream: https://github.com/keras-team/keras/blob/master/keras/src/utils/python_utils.py
Remove when `keras.layers.Layer` infers shapes of `compute_output_shape` from `call`.
"""


def is_default(method):
    """Mark a method as one that Keras may leave out: shapes then come from `call`."""
    method._is_default = True
    return method
