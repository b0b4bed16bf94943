"""The replicas that train a model: their number, sums over them, and the values of each."""

import contextlib

import keras
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
def num_shares():
    """Return the number of devices among which a batch is divided; JAX's variables stay whole."""
    distribution = keras.distribution.distribution()
    return 1 if distribution is None else distribution.num_model_replicas


@per_backend
def model_scope(model):
    """Return the scope in which variables of `model` are made."""
    return contextlib.nullcontext()


@per_backend
def replicas_of(variable):
    """Return the variables that hold each replica's value of a variable written per replica."""
    return [variable]


@per_backend
def local_parts(variable):
    """Return `replicas_of`, or the parts that this process holds of a variable that is divided."""
    return replicas_of(variable)


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


def refuse_model_parallel(name=None):
    """Raise an error if a model is to be divided among devices on another backend than JAX.

    TensorFlow trains a whole model on one device, without a word. `name` is that of a strategy.
    """
    made = keras.distribution.distribution()
    is_set = isinstance(made, keras.distribution.ModelParallel)
    backend = keras.backend.backend()
    if backend == "jax" or not is_set and name != "model_parallel":
        return
    received = "ModelParallel as the distribution" if is_set else f"name={name!r}"
    raise ValueError(
        f"On the backend {backend} no model is divided among devices: use KERAS_BACKEND=jax with "
        "`keras.distribution.ModelParallel`, or the strategy 'mirrored', which divides batches. "
        f"Received: {received}."
    )


def mean_over_replicas(values, count):
    """Return the sum of `values` divided by the number of units on all replicas.

    Keras divides the loss of each replica by the number of replicas.
    """
    return ops.sum(values) * num_replicas() / ops.maximum(replica_sum(count), 1)
