"""Which layers compute the same function of their inputs and weights."""

import json

import keras


def layer_kinds(layers):
    """Return a str for each layer, equal for layers that differ in names and weights only.

    A layer whose configuration does not tell its function has a kind of its own.
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
    left_out = {"name"} if {"name", "trainable"} <= config.keys() else ()
    return {key: _without_names(value) for key, value in config.items() if key not in left_out}
