"""The flag and the weights of one layer, without those inside it.

Private: `_trainable`, `_trainable_variables` and `_non_trainable_variables` of a
`keras.layers.Layer`: the public setter and lists are of all layers inside too. Holds for Keras
3.15, which keras_attn requires.
Upstream: https://github.com/keras-team/keras/blob/master/keras/src/layers/layer.py
Remove when Keras restores the flags of layers that a layer makes.
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
