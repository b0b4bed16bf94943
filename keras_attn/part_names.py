"""Names of the layers inside a layer, and paths of their variables, by attribute.

Keras names a layer by a counter: two models of one configuration would have other names.
"""

import re

import keras

from keras_attn.compat.layer_variables import own_weights, set_path
from keras_attn.sublayers import all_sublayers


def name_layers(layers):
    """Name layers by their paths, unless they are built or have a name that Keras does not give.

    Keras's names have a counter, so that of a second model would differ; and of two copies of one
    layer it is the same, so their variables would share a path.
    """
    for path, layer in layers.items():
        is_name_of_keras = re.fullmatch(rf"{class_name(layer)}(_\d+)?", layer.name)
        if layer.path is None and is_name_of_keras:
            layer.name = path.replace("/", "_")


def name_weights(layer):
    """Give weights that a built layer got later its path: they are made outside its scope."""
    for weight in own_weights(layer):
        if not weight.path.startswith(f"{layer.path}/"):
            set_path(weight, f"{layer.path}/{weight.name}")


def name_seeds(layer):
    """Give the seeds of a built layer and of Keras's layers inside it a path by attribute.

    Keras makes them with the layer, before any scope of names is open, and numbers them.
    """
    for place, each in all_sublayers(layer).items():
        for name, seed in vars(each).items():
            if isinstance(seed, keras.random.SeedGenerator):
                path = "/".join(filter(None, (layer.path or layer.name, place, name)))
                set_path(seed.state, f"{path}/seed_generator_state")


def class_name(layer):
    """Return the name of a layer's class as Keras writes it in names of layers."""
    name = re.sub(r"\W+", "", type(layer).__name__)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
