"""Kinds of layers: layers of one kind compute the same function of their inputs and weights."""

import contextlib
import json
import types
import warnings

from keras_attn.compat.keras_layers import flatten_layers

# A class of somebody else may depend on more than its configuration.
TRUSTED = ("keras", "keras_attn")
# Keras replaces these methods of each layer by functions that call them.
WRAPPED = {"build", "quantize"}


class _UnknownFunction(Exception):
    """Sign that a configuration does not determine what a layer computes."""


def layer_kinds(layers):
    """Return a str for each layer, equal for layers that differ in names and weights only.

    A layer has a kind of its own if its configuration may not determine its function: if it is or
    has a layer or value of a class that is not of Keras or this package, a function that is not
    registered, or a function in place of a method.
    """
    return [_kind(layer) or f"layer {index}" for index, layer in enumerate(layers)]


def _kind(layer):
    weights = [(tuple(v.shape), str(v.dtype), v.trainable) for v in layer.variables]
    with contextlib.suppress(Exception), warnings.catch_warnings():
        # Configurations may fail in any way, and those of lambdas warn.
        warnings.simplefilter("ignore")
        return json.dumps([weights, *map(_description, flatten_layers(layer))], sort_keys=True)
    return None


def _description(layer):
    """Return what determines the function of a layer beside its weights and its parts."""
    package, *_ = type(layer).__module__.partition(".")
    is_changed = any(hasattr(type(layer), name) for name in _own_functions(layer))
    if package not in TRUSTED or is_changed:
        raise _UnknownFunction
    config = layer.get_config()
    values = [getattr(layer, name, None) for name in config]
    # The name of a function in a configuration may be that of another one.
    functions = [id(value) for value in values if isinstance(value, types.FunctionType)]
    updates = sorted(getattr(layer, "updates", {}).items())  # of low rank, with their scales
    return [type(layer).__name__, _without_names(config), functions, updates]


def _own_functions(layer):
    """Return the names of functions that the layer itself has, beside those that Keras wraps."""
    functions = types.FunctionType, types.MethodType
    return {name for name, value in vars(layer).items() if isinstance(value, functions)} - WRAPPED


def _without_names(config):
    """Leave out the names of layers, and refuse what a configuration does not determine."""
    if isinstance(config, (list, tuple)):
        return [_without_names(value) for value in config]
    if not isinstance(config, dict):
        return config
    if config.get("class_name") == "function":
        if ">" not in str(config.get("config")):
            raise _UnknownFunction  # only its name is known
    elif not (config.get("registered_name") or "keras_attn>").startswith("keras_attn>"):
        raise _UnknownFunction
    left_out = {"name"} if {"name", "trainable"} <= config.keys() else ()
    return {key: _without_names(value) for key, value in config.items() if key not in left_out}
