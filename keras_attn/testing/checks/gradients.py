"""The gradient is finite, reaches every weight, and is the slope."""

import keras
import numpy as np
from keras import ops

from keras_attn.testing.numbers import random
from keras_attn.testing.slopes import gradients as gradients_of
from keras_attn.testing.subject import array, arrays, is_float

# So small that few relus change sides within it.
STEP = 0.002


def gradients(subject):
    """The gradient is finite, reaches every weight, and is the slope of the output."""
    layer = subject.copy()
    floats = [index for index, x in enumerate(subject.inputs) if is_float(x)]
    masks = subject.masks(subject.inputs)
    weights = layer.trainable_weights

    def results(*tensors):
        inputs = list(subject.inputs)
        for index, tensor in zip(floats, tensors, strict=True):
            inputs[index] = tensor
        return subject.raw_call(layer, *inputs, **masks)

    inputs = [subject.inputs[index] for index in floats]
    found = gradients_of(lambda *tensors: projection(results(*tensors)), inputs, weights)
    names = [f"input {index}" for index in floats] + [f"weight {w.path}" for w in weights]
    for place, (name, gradient) in enumerate(zip(names, found, strict=True)):
        if gradient is None:
            yield f"No gradient reaches {name}."
        elif not np.isfinite(gradient).all():
            yield f"The gradient by {name} is not finite."
        else:
            yield from _compare(name, gradient, _slope_along(results, inputs, weights, place))


def projection(results):
    """One number that every entry of the results has a share in."""
    parts = [ops.cast(x, "float32") for x in keras.tree.flatten(results) if is_float(x)]
    return sum(ops.sum(x * _share(x.shape)) for x in parts)


def _share(shape):
    return random(*shape, seed=11)


def _compare(name, gradient, slope_along):
    """Along the gradient itself, the slope is the gradient's length."""
    length = float(np.linalg.norm(gradient))
    direction = gradient / length if length > 1e-3 else random(*gradient.shape, seed=13)
    direction = direction / max(float(np.linalg.norm(direction)), 1e-30)
    expected = float(np.sum(gradient * direction))
    slope = slope_along(direction)
    # Wide enough for the kinks of a relu, which a step may cross.
    if abs(slope - expected) > 0.03 * max(1.0, abs(slope)):
        yield (
            f"Along the gradient by {name} the output was expected to grow by "
            f"{slope:.4g} for each step of 1, as it does, but the gradient says {expected:.4g}."
        )


def _slope_along(results, inputs, weights, place):
    """Function from a direction to the central difference, for one input or weight."""

    def at(offset):
        if place < len(inputs):
            moved = list(inputs)
            moved[place] = moved[place] + offset
            return arrays(results(*moved))
        weight = weights[place - len(inputs)]
        before = array(weight)
        weight.assign(before + offset)
        try:
            return arrays(results(*inputs))
        finally:
            weight.assign(before)

    def slope(direction):
        step = (STEP * direction).astype("float32")
        changes = zip(at(step), at(-step), strict=True)
        changes = [a.astype("float64") - b for a, b in changes if a.dtype == "float32"]
        return sum(float(np.sum(x * _share(x.shape))) for x in changes) / (2 * STEP)

    return slope
