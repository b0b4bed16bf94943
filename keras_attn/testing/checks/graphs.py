"""A graph gives what eager gives, at any size."""

from keras_attn.testing.numbers import apart
from keras_attn.testing.subject import arrays


def graph(subject):
    """A compiled graph gives what eager gives."""
    yield from _compare(subject, "In a graph", jit_compile=False)


def xla(subject):
    """So does a graph compiled with `jit_compile=True`."""
    yield from _compare(subject, "With `jit_compile=True`", jit_compile=True)


def unknown_sizes(subject):
    """One graph of unknown batch and length serves several sizes."""
    layer = subject.copy()
    model = subject.model(layer)
    model.compile(jit_compile=False)
    for inputs in (subject.inputs, subject.smaller()):
        expected = subject.call(layer, *inputs, **subject.masks(inputs))
        found = arrays(model.predict_on_batch(subject.model_inputs(inputs)))
        far = apart(found, expected)
        if far:
            shapes = ", ".join(str(x.shape) for x in inputs)
            yield f"A model of unknown batch and length gave, on inputs {shapes}: {far}."


def _compare(subject, where, jit_compile):
    layer = subject.copy()
    expected = subject.call(layer, *subject.inputs, **subject.masks(subject.inputs))
    model = subject.model(layer)
    model.compile(jit_compile=jit_compile)
    far = apart(arrays(model.predict_on_batch(subject.model_inputs(subject.inputs))), expected)
    if far:
        yield f"{where}, the output was expected to be that of eager calls, but {far}."
