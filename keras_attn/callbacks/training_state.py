"""The variables of training as arrays, and back."""

import keras
import numpy as np
from keras import ops

from keras_attn.backend.replicas import replicas_of
from keras_attn.distribution.workers import scope_of


def state_of(model):
    """Every variable of training but for metrics: weights, seeds, memories, optimizer."""
    if not model.built or getattr(model, "optimizer", None) is None:
        raise ValueError(
            f"`model` must be built and compiled before it is restored. Received: model={model}"
        )
    if not model.optimizer.built:
        with scope_of(model):
            model.optimizer.build(model.trainable_variables)
    return [*model.variables, *model.optimizer.variables]


def pull_state(model):
    """The values of `state_of`. Replicas share what is trained and the optimizer's variables: of
    these one value is read."""
    optimizer = [variable.numpy() for variable in state_of(model)[len(model.variables) :]]
    return [v.numpy() if v.trainable else pull(v) for v in model.variables] + optimizer


def pull(variable):
    """The value, or the values of all replicas in a new first axis where they differ."""
    parts = [part.numpy() for part in replicas_of(variable)]
    if all(np.array_equal(part, parts[0]) for part in parts[1:]):
        return parts[0]
    return np.stack(parts)


def push_all(variables, values):
    """Sets what `pull` gave."""
    for variable, value in zip(variables, values, strict=True):
        parts = replicas_of(variable)
        each = [value] * len(parts) if value.ndim == len(variable.shape) else value
        for part, own in zip(parts, each, strict=True):
            part.assign(ops.convert_to_tensor(own, variable.dtype))


def fits(variables, values):
    """Whether each of the values is one that could be pulled from the variable."""
    return len(variables) == len(values) and all(
        value.shape in (shape, (len(replicas_of(variable)), *shape))
        for variable, value in zip(variables, values)
        for shape in [tuple(variable.shape)]
    )


def leave_the_loop(model):
    """Within an epoch JAX keeps the state outside the model; afterwards it is the model's again,
    and the next batch takes it from there."""
    if keras.backend.backend() == "jax":
        model.jax_state_sync()
