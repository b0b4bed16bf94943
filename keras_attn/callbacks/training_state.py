"""Variables of training as NumPy arrays, and back."""

import keras
import numpy as np
from keras import ops

from keras_attn.backend.replicas import is_divided, local_parts, model_scope
from keras_attn.ops.checks import check_that


def training_variables(model):
    """Return all variables of training except metrics: weights, seeds, memories, optimizer."""
    is_ready = model.built and getattr(model, "optimizer", None) is not None
    check_that(is_ready, "built and compiled before it is restored", model=model)
    if not model.optimizer.built:
        with model_scope(model):
            model.optimizer.build(model.trainable_variables)
    return [*model.variables, *model.optimizer.variables]


def read_training_variables(model):
    """Return the values of `training_variables`.

    Replicas share trainable weights and the optimizer's variables: one value is read of each. Of a
    variable that is divided among processes it is the parts that this process holds.
    """
    optimizer = [_read_shared(v) for v in training_variables(model)[len(model.variables) :]]
    weights = [_read_shared(v) if v.trainable else read_variable(v) for v in model.variables]
    return weights + optimizer


def _read_shared(variable):
    return read_variable(variable) if is_divided(variable) else variable.numpy()


def read_variable(variable):
    """Return the value, or the values of all replicas in a new first axis if they differ."""
    parts = [part.numpy() for part in local_parts(variable)]
    if all(np.array_equal(part, parts[0]) for part in parts[1:]):
        return parts[0]
    return np.stack(parts)


def assign_variables(variables, values):
    """Assign values that `read_variable` returned."""
    for variable, value in zip(variables, values, strict=True):
        parts = local_parts(variable)
        each = [value] * len(parts) if value.ndim == len(variable.shape) else value
        for part, own in zip(parts, each, strict=True):
            part.assign(ops.convert_to_tensor(own, variable.dtype))


def values_fit(variables, values):
    """Return True if `read_variable` could have returned each value for its variable."""
    return len(variables) == len(values) and all(
        value.shape in (shape, (len(parts), *shape))
        for parts, value in zip(map(local_parts, variables), values)
        for shape in [tuple(parts[0].shape)]
    )


def sync_jax_state(model):
    """Write the state that JAX keeps outside the model during an epoch back into the model.

    The next batch takes it from there again. Other backends need nothing.
    """
    if keras.backend.backend() == "jax":
        model.jax_state_sync()
