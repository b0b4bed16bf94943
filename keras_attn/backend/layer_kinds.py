"""Which layers compute the same function of their inputs and weights."""

import json

import keras

# Classes of a user may leave out of their configuration what changes their function.
TRUSTED = "keras_attn>"


def layer_kinds(layers):
    """Return a str for each layer, equal for layers that differ in names and weights only.

    A layer whose configuration may not tell its function has a kind of its own: it has a function
    that is not registered, or is or has an object of a class that is not of Keras or this package.
    """
    return [_kind(layer) or f"layer {index}" for index, layer in enumerate(layers)]


def _kind(layer):
    weights = [(tuple(v.shape), str(v.dtype), v.trainable) for v in layer.variables]
    try:
        config = _without_names(keras.saving.serialize_keras_object(layer))
        return json.dumps([config, weights], sort_keys=True)
    except (NotImplementedError, TypeError, ValueError):
        return None


def _without_names(config):
    """Leave out the names of layers, not those of others, such as dtype policies."""
    if isinstance(config, (list, tuple)):
        return [_without_names(value) for value in config]
    if not isinstance(config, dict):
        return config
    if config.get("class_name") == "function" and ">" not in str(config["config"]):
        raise ValueError("Of a function that is not registered only the name is known.")
    registered_name = config.get("registered_name") or TRUSTED
    if config.get("class_name") != "function" and not registered_name.startswith(TRUSTED):
        raise ValueError("A class of a user may depend on more than its configuration.")
    left_out = {"name"} if {"name", "trainable"} <= config.keys() else ()
    return {key: _without_names(value) for key, value in config.items() if key not in left_out}
