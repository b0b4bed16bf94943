"""Dry run: the cost of a training, estimated from its first steps; nothing is written."""

import contextlib
import math
import time
from typing import NamedTuple

import keras
import numpy as np

from keras_attn.programs import command_of

from .progress import byte_size, duration, long_warmup

STEPS = 5  # measured; the first of them compiles
COMPARED_STEPS = 10  # with --jit-compile and without


class Estimate(NamedTuple):
    """Cost of one training, or of several that cost the same.

    Attributes:
        parameters: int. Number of the model's weights.
        weight_bytes, optimizer_bytes: ints. Of the variables, on each device; of those that a mesh
            divides, on all devices together.
        steps: int. Steps of the training.
        done: int. Steps that an earlier run, which this one resumes, has done.
        seconds: list of the seconds of the first steps; empty if no step is left.
        unit: str. Name of a step.
        plain_seconds: list like `seconds`, without --jit-compile; empty if it is not given.
    """

    parameters: int
    weight_bytes: int
    optimizer_bytes: int
    steps: int
    done: int
    seconds: list
    unit: str = "step"
    plain_seconds: tuple = ()

    @classmethod
    def of(cls, model, optimizer, **steps):
        """Return the estimate for a model and its optimizer, which has its variables."""
        sizes = byte_count(model.variables), byte_count(optimizer.variables)
        return cls(model.count_params(), *sizes, **steps)

    @property
    def seconds_left(self):
        """Expected seconds of the steps that are left."""
        return self._seconds_left(self.seconds)

    def _seconds_left(self, seconds):
        left = self.steps - self.done
        return seconds[0] + (left - 1) * seconds_per_step(seconds) if left else 0.0

    def lines(self):
        """Yield the lines that show the estimate."""
        weights, optimizer = map(byte_size, (self.weight_bytes, self.optimizer_bytes))
        yield (
            f"Model:  {self.parameters:,} parameters; {weights} of weights, {optimizer} of "
            "optimizer state"
        )
        done = f", of which {self.done:,} are done" if self.done else ""
        count = f"{self.steps:,}" if self.unit == "step" else f"{self.steps:,} {self.unit}s"
        yield f"Steps:  {count}{done}"
        if self.done < self.steps:
            yield f"Time:   {self._time(self.seconds)}"
        if self.plain_seconds:
            yield f"        without --jit-compile {self._time(self.plain_seconds)}"
            pays = self.seconds_left < self._seconds_left(self.plain_seconds)
            keep = "If all batches have one shape, keep the option."
            yield f"        {keep if pays else 'Leave the option out.'}"

    def _time(self, seconds):
        first = f"the first {self.unit} takes {seconds[0]:.3g} s, since it compiles"
        others = f"each other {seconds_per_step(seconds):.3g} s, the median of {len(seconds) - 1}"
        known = others if len(seconds) > 1 else "no other was measured"
        return f"about {duration(self._seconds_left(seconds))}: {first}; {known}"


def seconds_per_step(seconds):
    """Return the median without the first step, which compiles; the first if there is no other."""
    return float(np.median(seconds[1:] or seconds))


def estimate(run, steps_per_epoch, measure, unit="step"):
    """Return the `Estimate` of a `TrainingRun`.

    Args:
        run: a `TrainingRun`. Only its model in memory changes.
        steps_per_epoch: int.
        measure: function of a number of steps that returns a list of their seconds.
        unit: str. Name of a step.
    """
    steps = run.epochs * steps_per_epoch
    epoch, batch = run.resume_callback().restore(run.compiled_model)
    is_trained = run.trained_steps() is not None
    done = steps if is_trained else min(steps, epoch * steps_per_epoch + batch)
    is_compared = run.options.jit_compile and keras.backend.backend() == "tensorflow"
    seconds, plain_seconds = [], []
    if done < steps:
        count = min(COMPARED_STEPS if is_compared else STEPS, steps - done)
        seconds = measure(count)
        if is_compared:
            with _without_xla(run.compiled_model):
                plain_seconds = measure(count)
    times = {"seconds": seconds, "plain_seconds": plain_seconds, "unit": unit}
    entries = {"steps": steps, "done": done, **times}
    return Estimate.of(run.model, run.compiled_model.optimizer, **entries)


def report(options, estimates, files, data_bytes=0, trained=()):
    """Yield the lines of a dry run.

    Args:
        options: an `Options`.
        estimates: dict of names to `Estimate`s; "" names the only one.
        files: str. The files that a run writes to `options.out`.
        data_bytes: int. Size of the data in memory; 0 if batches are made as they are needed.
        trained: names of trainings that have ended.
    """
    command = command_of(f"recipes.{options.recipe}")
    yield f"Dry run of {command}: nothing is written, and no trained weight is kept."
    for name in trained:
        yield f"{name}: trained"
    for name, estimate in estimates.items():
        if name:
            yield f"{name}:"
        yield from estimate.lines()
        yield from long_warmup(options, estimate.steps)
    if data_bytes:
        yield f"Data:   {byte_size(data_bytes)} in memory"
    seconds = [estimate.seconds_left for estimate in estimates.values()]
    if len(seconds) > 1:
        yield f"All:    about {duration(sum(seconds))}"
    yield (
        "        The time does not include reading the data, validation, evaluation and export; "
        "the bytes do not include activations."
    )
    yield f"Files:  {options.out}: {files}"
    if not any(seconds):
        yield f"Resume: the training in {options.out} has ended; only what follows it is made again"
    elif trained or any(estimate.done for estimate in estimates.values()):
        yield f"Resume: the run in {options.out}"
    else:
        yield f"Resume: nothing; there is no checkpoint in {options.out}"


def byte_count(variables):
    """Return the bytes of variables."""
    return sum(math.prod(v.shape) * np.dtype(v.dtype).itemsize for v in variables)


@contextlib.contextmanager
def _without_xla(model):
    """Train a compiled model without XLA in this context."""
    model.jit_compile = False
    model.make_train_function(force=True)
    try:
        yield
    finally:
        model.jit_compile = True
        model.make_train_function(force=True)


def fit_seconds(model, train, scope, count=STEPS):
    """Train a model on the first batches of an `EpochDataset`.

    Args:
        model: a compiled model.
        train: an `EpochDataset`.
        scope: function that returns the strategy's scope.
        count: int. The number of steps.

    Returns:
        list of the seconds of each step, in whole epochs if an epoch has fewer than `count`.
    """
    seconds = StepSeconds()
    with scope():
        data = train.data()
    model.fit(
        data,
        epochs=math.ceil(count / len(train)),
        steps_per_epoch=min(count, len(train)),
        callbacks=[train.epoch_callback(), seconds],
        shuffle=False,
        verbose=0,
    )
    return seconds.seconds


class StepSeconds(keras.callbacks.Callback):
    """Measure the seconds of each step with its data, from the end of the step before."""

    def __init__(self):
        super().__init__()
        self.seconds = []

    def on_epoch_begin(self, epoch, logs=None):
        self._last = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        float(logs["loss"])  # waits for the device
        now = time.monotonic()
        self.seconds.append(now - self._last)
        self._last = now
