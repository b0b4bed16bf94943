"""When to stop: the arithmetic of adaptive computation time, for units that halt one by one."""

from typing import NamedTuple

import keras
from keras import ops

from keras_attn.backend.replicas import num_replicas, replica_sum
from keras_attn.ops.checks import check_numbers


class Halting(NamedTuple):
    """How far each unit is, float tensors of one shape.

    Attributes:
        running: 1 where a unit takes the next step, else 0.
        total: sum of the halting probabilities of the steps at which it went on.
        steps: N, the number of steps it has taken.
        remainder: R, what was left of 1 when it halted; 0 before.
    """

    running: object
    total: object
    steps: object
    remainder: object


def start(running):
    """Before the first step: `running` is 1, or 0 for a unit that never runs."""
    zeros = ops.zeros_like(running)
    return Halting(running, zeros, zeros, zeros)


def advance(halting, probability, is_last, epsilon, strict=False, remainder_at_last=True):
    """After one more step: the new `Halting`, and the weight of this step in the mean, p_n.

        p_n = h_n if h_1 + ... + h_n < 1 - epsilon and n < M, else R = 1 - (h_1 + ... + h_{n-1})

    The weights of a unit's steps sum to 1. N is a constant to the gradient.

    Args:
        halting: of the steps before.
        probability: h_n, as `halting.running`.
        is_last: bool, whether this step is the M-th.
        epsilon: float. How much of 1 may be missing.
        strict: bool. Whether to halt above 1 - epsilon only, not at it.
        remainder_at_last: bool. Whether the M-th step halts. If not, its weight is h_n, and the
            weights sum to less than 1.
    """
    reached = halting.total + probability
    halts = reached > 1 - epsilon if strict else reached >= 1 - epsilon
    if remainder_at_last:
        halts = ops.logical_or(halts, is_last)
    halts = halting.running * ops.cast(halts, probability.dtype)
    goes_on = halting.running - halts
    remainder = halts * (1 - halting.total)
    advanced = Halting(
        running=goes_on,
        total=halting.total + goes_on * probability,
        steps=halting.steps + halting.running,
        remainder=halting.remainder + remainder,
    )
    return advanced, goes_on * probability + remainder


def mean_over_real(values, count):
    """The sum of `values`, those of real units, by their number in the batch of all replicas.

    Keras divides the loss of each replica by the number of replicas.
    """
    return ops.sum(values) * num_replicas() / ops.maximum(replica_sum(count), 1)


def halting_unit(bias, compute_dtype):
    """The layer of the halting probabilities, at least in float32: a half never sums up to .99."""
    return keras.layers.Dense(
        1,
        activation="sigmoid",
        bias_initializer=keras.initializers.Constant(bias),
        dtype=at_least_float32(compute_dtype),
        name="halting",
    )


def steps_metric(layer):
    """The mean number of steps as a metric of `layer`, which `fit` and `evaluate` show.

    None on JAX, whose `fit` lets no metric change while a layer is called.
    """
    if keras.backend.backend() == "jax":
        return None
    return keras.metrics.Mean(name=f"{layer.name}_steps")


def show_steps(metric, steps, weights, training):
    """Adds to a `steps_metric`, but in calls that say nothing of training, as an export does."""
    if metric is not None and training is not None:
        metric.update_state(steps, weights)


def at_least_float32(dtype):
    return keras.backend.result_type(dtype, "float32")


def check_halting(epsilon, ponder_loss, halting_bias):
    """Refuses what is not a number, or below 0 where that means nothing."""
    check_numbers(0, epsilon=epsilon, ponder_loss=ponder_loss)
    check_numbers(halting_bias=halting_bias)
