"""Gradients on any backend."""

import keras
from keras import ops


def gradients(function, inputs, variables=()):
    """Gradients of `function(*inputs)`, a number, by the inputs and then by the variables.

    None stands where nothing connects the two.
    """
    tensors = [ops.convert_to_tensor(x) for x in inputs]
    found = _BACKENDS[keras.backend.backend()](function, tensors, list(variables))
    return [None if x is None else ops.convert_to_numpy(x) for x in found]


def _tensorflow(function, tensors, variables):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(tensors)
        total = function(*tensors)
    found = tape.gradient(total, [*tensors, *(variable.value for variable in variables)])
    return [None if x is None else tf.convert_to_tensor(x) for x in found]


def _jax(function, tensors, variables):
    import jax

    def run(tensors, values):
        with keras.StatelessScope(state_mapping=zip(variables, values, strict=True)):
            return function(*tensors)

    by_inputs, by_variables = jax.grad(run, argnums=(0, 1))(tensors, [v.value for v in variables])
    return [*by_inputs, *by_variables]


def _torch(function, tensors, variables):
    import torch

    tensors = [tensor.detach().requires_grad_() for tensor in tensors]
    by = [*tensors, *(variable.value for variable in variables)]
    return torch.autograd.grad(function(*tensors), by, allow_unused=True)


_BACKENDS = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}
