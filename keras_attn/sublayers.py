"""Layers inside a layer, by attribute: which are frozen or quantized, and their names.

Keras keeps these for a layer that a constructor gets. A layer that another one makes has no place
in a configuration, so it would come back trainable, in floats, and named by a counter.
"""

import re

import keras

from keras_attn.compat.keras_flags import (
    freezable_variables,
    own_weights,
    set_own_flag,
    set_path,
)
from keras_attn.compat.torch_parameters import modules


def attributes(layer):
    """Return the public attributes of a layer, by name."""
    values = {**vars(layer), **modules(layer)}
    return {name: value for name, value in values.items() if not name.startswith("_")}


def sublayers(layer):
    """Return the layers that are attributes of a layer, or in its lists and dicts, by path."""
    layers = layers_in(attributes(layer))
    if isinstance(layer, keras.Model):
        known = set(map(id, layers.values()))
        others = {f"layers/{i}": each for i, each in enumerate(layer.layers)}
        layers |= {path: each for path, each in others.items() if id(each) not in known}
    return layers


def layers_in(values):
    """Return the layers among the values of a dict, and in lists and dicts there, by path."""
    layers = {}
    for name, value in values.items():
        if isinstance(value, keras.layers.Layer):
            layers[str(name)] = value
        elif isinstance(value, (list, tuple, dict)):
            inside = value if isinstance(value, dict) else dict(enumerate(value))
            layers |= {f"{name}/{path}": each for path, each in layers_in(inside).items()}
    return layers


def all_sublayers(layer):
    """Return the layer and all inside it, each once, by path; its own is ""."""
    layers, seen, waiting = {}, set(), [("", layer)]
    while waiting:
        path, each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        layers[path] = each
        inside = [(f"{path}/{name}".lstrip("/"), x) for name, x in sublayers(each).items()]
        waiting.extend(reversed(inside))
    return layers


# The keys of a configuration with what `part_states` returns.
PART_STATES = ("frozen", "quantized")


def part_states(layer):
    """Return what no argument of a layer decides about it and the layers inside it, to save it."""
    states = {"frozen": frozen_parts(layer), "quantized": quantized_parts(layer)}
    return {name: state for name, state in states.items() if state}


def restore_parts(layer, states):
    """Give a layer and those inside it the states that `part_states` returned."""
    # Quantized layers have other variables.
    quantize_parts(layer, states.get("quantized", {}))
    if "frozen" in states:
        freeze_parts(layer, states["frozen"])


def frozen_parts(layer):
    """Return the paths of frozen layers, and the variables whose flag differs from their layer's.

    Adapters and the weights that they froze count as they are in a file, which has no adapters.

    Returns:
        A dict: `layers`, a list of paths, and `variables`, for the path of a layer the numbers of
        such variables. Empty if all train.
    """
    flags = {"layers": [], "variables": {}}
    for path, each in all_sublayers(layer).items():
        if not each.trainable:
            flags["layers"].append(path)
        variables = [v for v in freezable_variables(each) if not getattr(v, "is_adapter", False)]
        trains = [v.trainable or getattr(v, "is_frozen_by_adapters", False) for v in variables]
        if others := [i for i, flag in enumerate(trains) if flag != each.trainable]:
            flags["variables"][path] = others
    return flags if any(flags.values()) else {}


def freeze_parts(layer, flags):
    """Give a layer and those inside it the flags that `frozen_parts` returned.

    Raises:
        ValueError: if the layer is built and has no part of one of the paths.
    """
    layers = all_sublayers(layer)
    unknown = {*flags["layers"], *flags["variables"]} - layers.keys()
    if unknown and layer.built:
        raise ValueError(
            f"The frozen parts of {type(layer).__name__} must be parts that it has. "
            f"Received: {', '.join(sorted(unknown))}."
        )
    for path, each in layers.items():
        is_trainable = path not in flags["layers"]
        others = flags["variables"].get(path, ())
        set_own_flag(each, is_trainable)
        for number, variable in enumerate(freezable_variables(each)):
            variable.trainable = is_trainable != (number in others)


def quantized_parts(layer):
    """Return the mode and the configuration of each quantized layer inside a layer, by path."""
    return {
        path: {
            "mode": each.quantization_mode,
            "config": keras.saving.serialize_keras_object(each.quantization_config),
        }
        for path, each in all_sublayers(layer).items()
        if each.built and each.quantization_mode is not None
    }


def quantize_parts(layer, parts):
    """Quantize the built layers inside a layer as `quantized_parts` returned, unless they are."""
    layers = all_sublayers(layer)
    for path, options in parts.items():
        each = layers.get(path)
        if each is not None and each.built and each.quantization_mode is None:
            config = keras.saving.deserialize_keras_object(options["config"])
            each.quantize(options["mode"], config=config)
            name_weights(each)


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
