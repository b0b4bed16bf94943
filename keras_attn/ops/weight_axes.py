"""Rules by which layers of Keras itself are divided among devices."""

import keras


def declare_axes(layer, **axes):
    """Give a layer of Keras the attribute `weight_axes`, as layers of this package have it.

    The attribute is a dict: for the name of each weight, the mesh axis that divides each of its
    axes. `keras_attn.distribution.ModelParallel` describes it. Return the layer.
    """
    if not hasattr(layer, "weight_axes"):
        layer.weight_axes = axes
    return layer


def divide_outputs(head):
    """Let the outputs of a head be divided among devices, if it is a dense layer. Return it."""
    if isinstance(head, keras.layers.Dense):
        declare_axes(head, kernel=(None, "model"), bias=("model",))
    return head
