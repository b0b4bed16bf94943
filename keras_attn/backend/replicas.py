"""The replicas that train a model: their number, sums over them, and the values of each."""

import contextlib

import keras
import numpy as np
from keras import ops

from keras_attn.backend import per_backend
from keras_attn.compat.variable_values import replace_value, stored_value


@per_backend
def replica_sum(x):
    """Return the sum of `x` over all replicas.

    With one replica, or outside of them, where Keras builds the model symbolically, this is `x`.
    """
    return x


@per_backend
def replica_gather(x):
    """Return the rows of all replicas, one replica after another, and the number of the first here.

    Gradients are sums over the replicas. With one replica, and on JAX, whose arrays have the rows
    of all devices, these are x and 0.
    """
    return x, 0


@per_backend
def num_replicas():
    """Return the number of replicas of the `tf.distribute` strategy in scope."""
    return 1


@per_backend
def replica_number():
    """Return the number of this replica, from 0; 0 where there is one, and on JAX."""
    return 0


@per_backend
def num_shares():
    """Return the number of devices among which a batch is divided; JAX's variables are global."""
    distribution = keras.distribution.distribution()
    return 1 if distribution is None else distribution.num_model_replicas


@per_backend
def keep_rows(x):
    """Return `x` (B, ...), of which each device of a mesh keeps the rows of its part of the batch.

    Without it XLA may move activations where it should gather a weight that is divided among the
    devices of a batch.
    """
    return x


@per_backend
def model_scope(model):
    """Return the scope in which variables of `model` are made."""
    return contextlib.nullcontext()


@per_backend
def replicas_of(variable):
    """Return the variables that hold each replica's value of a variable written per replica."""
    return [variable]


@per_backend
def processes_share_state():
    """Return True if a variable is one for all processes, of which each may hold a part."""
    return False


@per_backend
def held_boxes(variable):
    """Return the boxes of a variable that this process holds.

    A box is a tuple of (start, stop) for each axis, or None for all of the variable.
    """
    return [None]


@per_backend
def held_parts(variable):
    """Return a dict from each box of `held_boxes` to a copy of its array.

    If the values of replicas differ, a new first axis has all of them.
    """
    values = [np.array(part.numpy()) for part in replicas_of(variable)]
    is_one = all(np.array_equal(value, values[0]) for value in values[1:])
    return {None: values[0] if is_one else np.stack(values)}


@per_backend
def saved_parts(variable, is_shared):
    """Return what this process saves of a variable, as `held_parts` does.

    All processes together save each number of a variable of theirs once. `is_shared` means that
    replicas have one value.
    """
    return {None: np.array(variable.numpy())} if is_shared else held_parts(variable)


@per_backend
def assign_parts(variable, parts):
    """Assign what `held_parts` returned, or all of the variable under None."""
    (value,) = parts.values()
    replicas = replicas_of(variable)
    each = [value] * len(replicas) if value.ndim == len(variable.shape) else value
    for replica, own in zip(replicas, each, strict=True):
        replica.assign(ops.convert_to_tensor(own, variable.dtype))


@per_backend
def numbers_of_processes(number):
    """Return the numbers that all processes give, in one process its own.

    Only processes that share state wait for each other.
    """
    return [number]


def wait_for_processes():
    """Wait until all processes that share state have come here."""
    numbers_of_processes(0)


@per_backend
def is_divided(variable):
    """Return True if only other processes hold some part of a variable."""
    return False


@per_backend
def whole_value(variable):
    """Return the value as an array. All processes must call it for a variable that is divided."""
    return variable.numpy()


@contextlib.contextmanager
def whole_values(variables):
    """Let variables that are divided among processes read their whole values, in all processes."""
    before = [(v, stored_value(v)) for v in variables if is_divided(v)]
    try:
        for variable, _ in before:
            replace_value(variable, whole_value(variable))
        yield
    finally:
        for variable, value in before:
            replace_value(variable, value)


def whole_model(model):
    """Let the variables of a model and of its optimizer read whole values, in all processes."""
    optimizer = getattr(model, "optimizer", None)  # a model is compiled or not
    return whole_values([*model.variables, *(() if optimizer is None else optimizer.variables)])


def refuse_model_parallel(name=None):
    """Raise an error if a model is to be divided among devices on another backend than JAX.

    TensorFlow would silently train the whole model on one device. `name` is that of a strategy.
    """
    made = keras.distribution.distribution()
    is_set = isinstance(made, keras.distribution.ModelParallel)
    backend = keras.backend.backend()
    if backend == "jax" or not is_set and name != "model_parallel":
        return
    received = "ModelParallel as the distribution" if is_set else f"name={name!r}"
    raise ValueError(
        f"On the backend {backend} no model is divided among devices: use KERAS_BACKEND=jax with "
        "the strategy 'model_parallel', or the strategy 'mirrored', which divides batches. "
        f"Received: {received}."
    )


def mean_over_replicas(values, count):
    """Return the sum of `values` divided by the number of units, both of all replicas.

    The gradient is that of this replica's values, times the number of replicas, by which Keras
    divides the losses that a layer adds.
    """
    mean = ops.sum(values) / ops.maximum(replica_sum(count), 1)
    return share_of_sum(mean) * num_replicas()


def share_of_sum(x):
    """Return the sum of `x` over all R replicas divided by R, with the gradient of `x`.

    Keras adds the replicas' gradients up. `fit` shows R times the row-weighted mean of the
    replicas' losses. This is the loss of one device only if all replicas return the same value.
    """
    total = replica_sum(x)
    if total is x:
        return x
    return x + ops.stop_gradient(total / num_replicas() - x)
