"""Kinds of layers: layers of one kind compute the same function of their inputs and weights."""

import contextlib
import json
import types
import warnings

import keras

from keras_attn import registry
from keras_attn.compat.keras_layers import flatten_layers

# Layers of Keras whose configuration and weights determine what they compute. Those of this package
# answer by `is_determined`.
DETERMINED = {keras.layers.Dense, keras.layers.Dropout, keras.layers.LayerNormalization}
# Keras replaces these methods of each layer by functions that call them.
WRAPPED = {"build", "quantize"}


class _UnknownFunction(Exception):
    """Sign that a configuration does not determine what a layer computes."""


def layer_kinds(layers):
    """Return a str for each layer, equal for layers that differ in names and weights only.

    A layer has a kind of its own if its configuration may not determine its function: if it is or
    has a layer that does not say so, a value of a class or a function of another library, or
    anything callable in place of a method.
    """
    return [_kind(layer) or f"layer {index}" for index, layer in enumerate(layers)]


def _kind(layer):
    weights = [(tuple(v.shape), str(v.dtype), v.trainable) for v in layer.variables]
    parts = flatten_layers(layer)
    with contextlib.suppress(Exception), warnings.catch_warnings():
        # Configurations may fail in any way, and those of lambdas warn.
        warnings.simplefilter("ignore")
        return json.dumps([weights, *(_description(part, parts) for part in parts)], sort_keys=True)
    return None


def _description(layer, parts):
    """Return what determines the function of a layer beside its weights and the `parts`."""
    cls = type(layer)
    replaced = (name for name in vars(layer).keys() - WRAPPED if callable(getattr(cls, name, None)))
    if not _is_determined(cls) or any(replaced):
        raise _UnknownFunction
    config = layer.get_config()
    values = [getattr(layer, name, None) for name in config]
    functions = [value for value in values if isinstance(value, types.FunctionType)]
    if not all(map(_is_known, functions)):
        raise _UnknownFunction
    places = {id(part): index for index, part in enumerate(parts)}
    roles = {name: places[id(value)] for name, value in vars(layer).items() if id(value) in places}
    updates = list(getattr(layer, "updates", {}).items())  # of low rank, with their scales
    # The name of a function in a configuration may be that of another one.
    return [cls.__name__, _without_names(config), list(map(id, functions)), roles, updates]


def _is_determined(cls):
    """Return True if the configuration, the parts and the weights of layers determine the rest."""
    is_configurable = issubclass(cls, registry.Configurable)
    return cls.is_determined() if is_configurable else cls in DETERMINED


def _is_known(function):
    """Return True for a function of this package or one of `keras.activations`."""
    name = function.__name__
    return registry.is_own(function) or getattr(keras.activations, name, None) is function


def _without_names(config):
    """Leave out the names of layers, and refuse what a configuration does not determine."""
    if isinstance(config, (list, tuple)):
        return [_without_names(value) for value in config]
    if not isinstance(config, dict):
        return config
    is_function = config.get("class_name") == "function"
    name = str(config["config"]) if is_function else config.get("registered_name")
    if name and not registry.is_own(keras.saving.get_registered_object(name)):
        raise _UnknownFunction
    left_out = {"name"} if {"name", "trainable"} <= config.keys() else ()
    return {key: _without_names(value) for key, value in config.items() if key not in left_out}
