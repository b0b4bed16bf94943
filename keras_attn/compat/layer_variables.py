"""The flag and the variables of one layer, without those inside it, and paths of variables.

Private: `_trainable`, `_trainable_variables` and `_non_trainable_variables` of a
`keras.layers.Layer`: the public setter and lists are of all layers inside too. `Variable._path`:
seeds are made before their layer is named, and weights that a built layer gets outside its scope.
Holds for Keras 3.15, which keras_attn requires.
Upstream: https://github.com/keras-team/keras/blob/master/keras/src/layers/layer.py
Remove when Keras restores the flags of layers that a layer makes, and begins the path of each
variable with that of its layer.
"""


def set_own_flag(layer, is_trainable):
    """Set the flag of one layer, and of none inside it."""
    layer._trainable = is_trainable


def freezable_variables(layer):
    """Return the variables of one layer, without those inside it, that training may change."""
    return layer._trainable_variables


def own_weights(layer):
    """Return the weights of one layer, without those inside it."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def set_path(variable, path):
    """Give a variable the path that it would have if it were made inside its layer."""
    variable._path = path
