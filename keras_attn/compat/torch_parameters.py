"""The parameters that a model has for torch, and the layers that torch keeps of a layer.

Private: `torch.nn.Module._modules`, which holds the attributes that are layers, and
`keras.layers.Layer._track_variables`, of Keras on torch. For `torch.nn.Module.parameters`
a layer collects the variables of all layers inside it, by path, when it is built. What a layer in a
list gains or loses later is missing among those of the layers around it, and so is a new path.
Holds for Keras 3.15, which keras_attn requires.
Upstream: https://github.com/keras-team/keras/blob/master/keras/src/backend/torch/layer.py
Remove when Keras tells the layers around a layer of a weight that it gains after its build.
"""

import keras

from keras_attn.compat.keras_layers import flatten_layers


def modules(layer):
    """Return the attributes of a layer that torch keeps elsewhere than `vars`; empty without it."""
    return vars(layer).get("_modules", {})


def renew_parameters(model):
    """Let `model.parameters()` give the variables that a built model has now; only on torch."""
    if keras.backend.backend() == "torch":
        for layer in flatten_layers(model):
            layer._track_variables()
