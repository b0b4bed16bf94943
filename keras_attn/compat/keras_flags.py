"""The flags of a layer by themselves, paths of seeds, and Keras's mark of a default method.

Private: `keras.layers.Layer._trainable` and `_trainable_variables`: the public setter sets all
layers inside too. `_is_default`, which `keras.layers.Layer` reads before it infers shapes from
`compute_output_shape` and not from `call`. `Variable._path`: a seed is made before its layer is
named. Holds for Keras 3.15, which keras_attn
requires.
Upstream: https://github.com/keras-team/keras/blob/master/keras/src/layers/layer.py
Remove when Keras restores the flags and the paths of what layers make.
"""


def set_own_flag(layer, is_trainable):
    """Set the flag of one layer, and of none inside it."""
    layer._trainable = is_trainable


def freezable_variables(layer):
    """Return the variables of one layer, without those inside it, that training may change."""
    return layer._trainable_variables


def set_path(variable, path):
    """Give a variable the path that it would have if it were made inside its layer."""
    variable._path = path


def is_default(method):
    """Mark a method as one that Keras may leave out: shapes then come from `call`."""
    method._is_default = True
    return method
