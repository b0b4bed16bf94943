"""Halting: the arithmetic of adaptive computation time, and the record of steps on request."""

import contextlib
import threading
from typing import NamedTuple

import keras
from keras import ops

from keras_attn.backend.operations import is_in_step
from keras_attn.ops.checks import check_numbers, check_that


class Progress(NamedTuple):
    """The progress of each unit: float tensors of one shape."""

    running: object  # 1 where a unit takes the next step, else 0
    total: object  # sum of the halting probabilities of the steps after which it did not halt
    steps: object  # N, the number of steps it has taken
    remainder: object  # R, 1 minus that sum when it halted; 0 before


def start(running):
    """Return the state before the first step; `running` is 0 for a unit that never runs."""
    zeros = ops.zeros_like(running)
    return Progress(running, zeros, zeros, zeros)


def advance(progress, probability, is_last, epsilon, tensor2tensor=False):
    """Return the `Progress` after one more step, and the weight of this step in the mean, p_n.

        p_n = h_n if h_1 + ... + h_n < 1 - epsilon and n < M, else R = 1 - (h_1 + ... + h_{n-1})

    The weights of a unit's steps sum to 1. N is a constant to the gradient.

    Args:
        progress: of the steps before. probability: h_n, as `progress.running`.
        is_last: bool. True at the M-th step.
        tensor2tensor: bool. If True, a unit halts above 1 - epsilon only, and the M-th step does
            not halt it and has the weight h_n, so that the weights may sum to less than 1.
    """
    reached = progress.total + probability
    if tensor2tensor:
        halts = reached > 1 - epsilon
    else:
        halts = ops.logical_or(reached >= 1 - epsilon, is_last)
    halts = progress.running * ops.cast(halts, probability.dtype)
    continues = progress.running - halts
    remainder = halts * (1 - progress.total)
    advanced = Progress(
        running=continues,
        total=progress.total + continues * probability,
        steps=progress.steps + progress.running,
        remainder=progress.remainder + remainder,
    )
    return advanced, continues * probability + remainder


def halting_unit(bias, compute_dtype):
    """Return the layer of halting probabilities: float16 is too coarse for sums to reach 0.99."""
    return keras.layers.Dense(
        1,
        activation="sigmoid",
        bias_initializer=keras.initializers.Constant(bias),
        dtype=at_least_float32(compute_dtype),
        name="halting",
    )


def steps_metric(layer):
    """Return the metric of the mean number of steps, which `fit` and `evaluate` show."""
    if keras.backend.backend() == "jax":
        return None  # on JAX, `fit` does not let a layer's call update a metric
    return keras.metrics.Mean(name=f"{layer.name}_steps")


def show_steps(metric, steps, weights, training):
    """Update a `steps_metric` in training, and in steps of `evaluate`.

    Exports trace with `training=None`, or, as Keras's LiteRT export, with False.
    """
    if metric is not None and (training or training is False and is_in_step()):
        metric.update_state(steps, weights)


def at_least_float32(dtype):
    return keras.backend.result_type(dtype, "float32")


def check_halting(epsilon, ponder_loss, halting_bias):
    """Raise a `ValueError` unless all are numbers, the first two at least 0.

    `epsilon` is at most 1, where every position halts at its first step.
    """
    check_numbers(0, epsilon=epsilon, ponder_loss=ponder_loss)
    check_that(epsilon <= 1, "at most 1", epsilon=epsilon)
    check_numbers(halting_bias=halting_bias)


class Halting(NamedTuple):
    """Steps and remainders of adaptive computation time, a tensor each, of one shape (B, T).

        ponder cost of a position = N + R

    Attributes:
        steps: int32, the number of steps N; 0 at padding.
        remainder: at least float32, what the probabilities of the steps before the last one leave,
            R = 1 - (h^1 + ... + h^{N-1}); 0 at padding. Of Tensor2Tensor's variants it is 0, too,
            at a position that does not halt within the most steps.

    Example:
        >>> import keras, keras_attn
        >>> from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
        >>> block = TransformerBlock(MultiHeadAttention(2, 8), FeedForward(32))
        >>> encoder = keras_attn.depth.ACT(block, max_steps=6)
        >>> _, halting = encoder(keras.ops.ones((3, 5, 16)), return_halting=True)
        >>> halting.steps.shape
        TensorShape([3, 5])

    Reference: [Graves, 2016](https://arxiv.org/abs/1603.08983), section 2, eq. 6 to 9.
    """

    steps: object
    remainder: object


class _Record(threading.local):
    """The function of a layer and its `Halting` that calls of this thread make; None for none."""

    function = None


_record = _Record()


@contextlib.contextmanager
def record_halting(function):
    """Call `function(layer, halting)` after each run of a layer in this scope.

    It is called in the program that computes the tensors, so that they may become its outputs.
    Those of an `ACTCell` are tensors of a loop's body. A scope outside is called before.
    """
    outer = _record.function

    def call(layer, halting):
        if outer is not None:
            outer(layer, halting)
        function(layer, halting)

    _record.function = call
    try:
        yield
    finally:
        _record.function = outer


def give_halting(layer, progress):
    """Give the steps and remainders of a run, the attributes of `progress`, to the open scopes."""
    if _record.function is not None:
        _record.function(layer, Halting(ops.cast(progress.steps, "int32"), progress.remainder))


def is_recorded():
    """Return True inside a `record_halting`."""
    return _record.function is not None


def call_with_halting(layer, call):
    """Return what `call()` returns, and the `Halting`s of its runs of `layer`, a list."""
    halts = []

    def keep(of, halting):
        if of is layer:
            halts.append(halting)

    with record_halting(keep):
        return call(), halts
