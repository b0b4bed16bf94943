"""The same call gives the same result, whoever else is in the batch."""

import numpy as np

from keras_attn.testing.numbers import equal, random
from keras_attn.testing.running import NotApplicable
from keras_attn.testing.subject import is_float, restore, state


def repeatable(subject):
    """Inference is deterministic; training is random as the seeds say."""
    layer = subject.copy()
    calm = subject.call(layer, *subject.inputs)
    if not equal(subject.call(layer, *subject.inputs), calm):
        yield "Two calls with `training=False` on the same inputs gave different outputs."
    if "dropout" not in subject.config or not subject.accepts("training"):
        return
    layer = subject.copy(dropout=0.4)
    seeds = state(layer)
    first, second = (subject.call(layer, *subject.inputs, training=True) for _ in range(2))
    if equal(first, subject.call(layer, *subject.inputs)):
        yield "With `dropout=0.4`, `training=True` gave the output of `training=False`."
    if equal(first, second):
        yield "With `dropout=0.4`, two training steps dropped the same entries."
    restore(layer, seeds)
    if not equal(subject.call(layer, *subject.inputs, training=True), first):
        yield "With `dropout=0.4` and the same state of the seeds, training gave another output."


def batch_independence(subject):
    """The output of a row does not depend on the other rows."""
    floats = [is_float(x) for x in subject.inputs]
    if not any(floats) or subject.inputs[0].shape[0] < 2:
        raise NotApplicable("there is no second row of vectors to change")
    layer = subject.copy()
    before = subject.call(layer, *subject.inputs)
    others = [
        np.concatenate([x[:1], random(*x[1:].shape, seed=5, scale=3)]) if real else x
        for x, real in zip(subject.inputs, floats, strict=True)
    ]
    after = subject.call(layer, *others)
    if not equal([x[:1] for x in after], [x[:1] for x in before]):
        yield "Changing the other rows of the batch changed the output of the first row."
