"""Which layers inside a layer are frozen or quantized.

Keras keeps this for a layer that a constructor gets. A layer that another one makes has no place in
a configuration: it would come back trainable and in floats.
"""

import keras

from keras_attn.compat.layer_variables import freezable_variables, set_own_flag
from keras_attn.part_names import name_weights
from keras_attn.sublayers import all_sublayers

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
