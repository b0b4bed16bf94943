"""The layer under test."""

import contextlib
import inspect

import keras
import numpy as np
from keras import ops

from keras_attn.testing.numbers import coarse, random


class Subject:
    """A layer under test, example inputs for it, and how to make and call copies of it.

    Checks work on copies, whose weights are moved off their initial values: a bias that is zero, or
    a scale that is one, would hide mistakes. The layer itself is only built, where it is not yet.

    Args:
        layer: the layer.
        inputs: tuple of arrays, the layer's positional inputs.
    """

    def __init__(self, layer, inputs):
        self.layer = layer
        inputs = (np.asarray(x) for x in inputs)
        self.inputs = tuple(coarse(x) if is_float(x) else x for x in inputs)
        self.config = layer.get_config()
        self._weights = None
        if not layer.built:
            self.call(layer, *self.inputs)

    def accepts(self, name):
        """True if the layer's `call` has an argument of that name."""
        return name in inspect.signature(self.layer.call).parameters

    def masks(self, inputs):
        """Masks that an ordinary call gives by name, besides its inputs."""
        return {}

    def copy(self, policy="float32", **changes):
        """A built layer of the same configuration under a dtype policy, `changes` apart."""
        config = {**self.config, **changes}
        own = keras.saving.serialize_keras_object(self.layer.dtype_policy)
        with _default_policy(policy):
            layer = type(self.layer).from_config(_with_policy(config, own, policy))
            self.call(layer, *self.inputs)
        if self._weights is None:
            _move(layer.trainable_weights)
            self._weights = layer.get_weights()
        layer.set_weights(self._weights)
        return layer

    def call(self, layer, *inputs, training=False, **arguments):
        """The layer's results, a list of arrays."""
        return arrays(self.raw_call(layer, *inputs, training=training, **arguments))

    def raw_call(self, layer, *inputs, training=False, **arguments):
        """The layer's results as it gives them."""
        if self.accepts("training"):
            arguments["training"] = training
        return layer(*(ops.convert_to_tensor(x) for x in inputs), **arguments)

    def model(self, layer, **arguments):
        """A functional model around the layer, of unknown batch and length."""
        masks = self.masks(self.inputs)
        inputs = [keras.Input(_unknown(x), dtype=str(x.dtype)) for x in self.inputs]
        given = {name: keras.Input(_unknown(x), dtype="bool") for name, x in masks.items()}
        return keras.Model([*inputs, *given.values()], layer(*inputs, **given, **arguments))

    def model_inputs(self, inputs):
        """The inputs of `model`."""
        return [*inputs, *self.masks(inputs).values()]

    def smaller(self):
        """Inputs of another batch size and length."""
        return tuple(x[:1, : -(-x.shape[1] // 2)] if has_length(x) else x[:1] for x in self.inputs)


def _move(weights):
    """Gives weights values that hide nothing, and are the same every time."""
    for index, weight in enumerate(weights):
        initial = array(weight)
        spread = 0.3 if initial.ndim < 2 else initial.shape[0] ** -0.5
        value = random(*initial.shape, seed=index + 1, scale=spread)
        if initial.size and (initial == initial.flat[0]).all():
            value = initial + value  # a bias, or a scale that starts as one
        if weight.constraint is not None:
            value = array(weight.constraint(ops.convert_to_tensor(value)))
        weight.assign(coarse(value))


def arrays(results):
    """Nested tensors as a flat list of arrays, floats as float32."""
    return [array(x) for x in keras.tree.flatten(results)]


def array(x):
    """A tensor or variable as an array."""
    x = ops.convert_to_tensor(x)
    return ops.convert_to_numpy(ops.cast(x, "float32") if is_float(x) else x)


def is_float(x):
    return keras.backend.is_float_dtype(x.dtype)


def has_length(x):
    """True if the second axis is a sequence: of vectors, or of ids."""
    return x.ndim >= 3 or (x.ndim == 2 and not is_float(x))


def _unknown(x):
    """The shape of an input of unknown length, without the batch."""
    if x.dtype == bool:
        return (None,) * (x.ndim - 1)
    return (None, *x.shape[2:]) if has_length(x) else x.shape[1:]


@contextlib.contextmanager
def _default_policy(policy):
    """Sublayers that a layer makes without saying a dtype follow Keras's default."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _with_policy(config, own, policy):
    """A configuration with the layer's own dtype policy, wherever it stands in it, replaced."""
    if isinstance(config, dict):
        return {
            key: policy
            if key == "dtype" and value in (own, own["config"].get("name"))
            else _with_policy(value, own, policy)
            for key, value in config.items()
        }
    if isinstance(config, (list, tuple)):
        return type(config)(_with_policy(value, own, policy) for value in config)
    return config


def state(layer):
    """All numbers that a layer holds, the state of its seeds among them."""
    return [array(variable) for variable in layer.variables]


def restore(layer, numbers):
    for variable, value in zip(layer.variables, numbers, strict=True):
        variable.assign(value)
