"""Variables of training as NumPy arrays, and back."""

import contextlib

import keras

from keras_attn.backend.replicas import (
    assign_parts,
    held_boxes,
    model_scope,
    numbers_of_processes,
    replicas_of,
    saved_parts,
)
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
    """Return what this process saves of `training_variables`, as `read_variables` does.

    Replicas share trainable weights and the optimizer's variables: one value is read of each.
    """
    variables = training_variables(model)
    count = len(model.variables)
    is_shared = [v.trainable for v in model.variables] + [True] * (len(variables) - count)
    return read_variables(variables, is_shared)


def read_variables(variables, is_shared=None):
    """Return (shape, parts) of each variable: copies of what this process saves of it.

    `is_shared` says of each whether replicas have one value, by default that they have not.
    """
    found = []
    for variable, shared in zip(variables, is_shared or [False] * len(variables), strict=True):
        parts = saved_parts(variable, shared)
        whole = parts.get(None)
        found.append((tuple(variable.shape) if whole is None else whole.shape, parts))
    return found


def shapes_fit(variables, shapes):
    """Return True if `read_variables` could have returned each shape for its variable."""
    return len(variables) == len(shapes) and all(
        tuple(shape) in (tuple(v.shape), (len(replicas_of(v)), *v.shape))
        for v, shape in zip(variables, shapes)
    )


def read_stored(variables, state):
    """Return the parts of variables that this process holds, from a `StoredState`.

    `state` holds these variables first.
    """
    return [
        {box: state.read(number, box) for box in held_boxes(variable)}
        for number, variable in enumerate(variables)
    ]


@contextlib.contextmanager
def raise_in_all_processes():
    """Raise an error in all processes that share state if the block raises one in any.

    Otherwise the others would train, and wait for it. No process may wait for others in the block.
    """
    failure = None
    try:
        yield
    except Exception as error:
        failure = error
    if any(numbers_of_processes(failure is not None)):
        raise failure or ValueError("Another process cannot use the checkpoints, and says why.")


def assign_all(variables, values):
    """Assign to each variable the parts in `values`."""
    for variable, parts in zip(variables, values, strict=True):
        assign_parts(variable, parts)


def sync_jax_state(model):
    """Write the state that JAX keeps outside the model during an epoch back into the model.

    The next batch takes it from there again. Other backends need nothing.
    """
    if keras.backend.backend() == "jax":
        model.jax_state_sync()
