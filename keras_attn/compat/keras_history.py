"""The layer that made a symbolic tensor.

Private: `keras.KerasTensor._keras_history`. Holds for Keras 3.6, which added optional inputs, to
3.15.
Upstream: https://github.com/keras-team/keras/blob/master/keras/src/ops/node.py
Remove when Keras tells by a public name which inputs of a functional model are optional.
"""


def is_optional_input(tensor):
    """Return True if an input tensor of a functional model may be None in a call."""
    return tensor._keras_history.operation.optional
