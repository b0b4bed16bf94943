"""Repeated and compiled calls give the same results, for any batch and length."""

import numpy as np

from keras_attn.testing.numerics import compare, describe_shapes, equal, is_float, random
from keras_attn.testing.report import NotApplicable
from keras_attn.testing.subject import get_state, set_state


def repeatable(subject):
    """Inference is deterministic; the state of the seeds determines training."""
    layer = subject.copy()
    first = subject.call(layer, *subject.inputs)
    if not equal(subject.call(layer, *subject.inputs), first):
        yield "Two calls with `training=False` on the same inputs gave different outputs."
    layer = subject.copy_with_dropout()
    if layer is None:
        return
    seeds = get_state(layer)
    first, second = (subject.call(layer, *subject.inputs, training=True) for _ in range(2))
    if equal(first, subject.call(layer, *subject.inputs)):
        yield "With `dropout=0.4`, `training=True` gave the output of `training=False`."
    if equal(first, second):
        yield "With `dropout=0.4`, two training steps dropped the same entries."
    set_state(layer, seeds)
    if not equal(subject.call(layer, *subject.inputs, training=True), first):
        yield "With `dropout=0.4` and the same state of the seeds, training gave another output."


def batch_independence(subject):
    """The output of a row does not depend on the other rows."""
    floats = [is_float(x) for x in subject.inputs]
    if not any(floats) or subject.inputs[0].shape[0] < 2:
        raise NotApplicable("there is no second row of vectors to change")
    layer = subject.copy()
    before = subject.call(layer, *subject.inputs)
    changed = [
        np.concatenate([x[:1], random(*x[1:].shape, seed=5, scale=3)]) if has_floats else x
        for x, has_floats in zip(subject.inputs, floats, strict=True)
    ]
    after = subject.call(layer, *changed)
    if not equal([x[:1] for x in after], [x[:1] for x in before]):
        yield "Changing the other rows of the batch changed the output of the first row."


def graph(subject):
    """A compiled graph gives the output of eager calls."""
    yield from _compare_with_eager(subject, "In a graph", subject.inputs)


def xla(subject):
    """A graph compiled with `jit_compile=True` gives the output of eager calls."""
    condition = "With `jit_compile=True`"
    yield from _compare_with_eager(subject, condition, subject.inputs, jit_compile=True)


def unknown_sizes(subject):
    """One graph of unknown batch and length accepts several sizes."""
    condition, sizes = "In a model of unknown batch and length", subject.inputs_of_two_sizes()
    yield from _compare_with_eager(subject, condition, *sizes)


def _compare_with_eager(subject, condition, *sizes, jit_compile=False):
    layer = subject.copy()
    model = subject.model(layer, jit_compile)
    for inputs in sizes:
        sentence = (
            f"{condition}, on inputs {describe_shapes(inputs)}, the output was expected to be that "
            "of eager calls"
        )
        found = subject.predict(model, inputs)
        yield from compare(sentence, found, subject.call_with_masks(layer, inputs))
