"""The gradient is finite, reaches every weight, and equals finite differences."""

import functools

import keras
import numpy as np
from keras import ops

from keras_attn.testing.numerics import compute_gradients, is_float, random, to_array, to_arrays

# Small, so that few relus change sides within a step.
STEP = 0.002


def gradients(subject):
    """The gradient is finite, reaches every weight, and equals finite differences."""
    layer = subject.copy()
    floats = [index for index, x in enumerate(subject.inputs) if is_float(x)]
    masks = subject.masks(subject.inputs)
    weights = layer.trainable_weights

    def call(*tensors):
        inputs = list(subject.inputs)
        for index, tensor in zip(floats, tensors, strict=True):
            inputs[index] = tensor
        return subject.raw_call(layer, *inputs, **masks)

    inputs = [subject.inputs[index] for index in floats]
    found = compute_gradients(lambda *tensors: weighted_sum(call(*tensors)), inputs, weights)
    names = [f"input {index}" for index in floats] + [f"weight {w.path}" for w in weights]
    for index, (name, gradient) in enumerate(zip(names, found, strict=True)):
        if gradient is None:
            yield f"No gradient reaches {name}."
        elif not np.isfinite(gradient).all():
            yield f"The gradient by {name} is not finite."
        else:
            slope = functools.partial(_slope, call, inputs, weights, index)
            yield from _compare(name, gradient, slope)


def weighted_sum(results):
    """Sum of all float results with random weights: a scalar that depends on every entry."""
    parts = [ops.cast(x, "float32") for x in keras.tree.flatten(results) if is_float(x)]
    return sum(ops.sum(x * _sum_weights(x.shape)) for x in parts)


def _sum_weights(shape):
    return random(*shape, seed=11)


def _compare(name, gradient, slope_along):
    """Compare the slope along the gradient's own direction to the gradient's length."""
    length = float(np.linalg.norm(gradient))
    direction = gradient / length if length > 1e-3 else random(*gradient.shape, seed=13)
    direction = direction / max(float(np.linalg.norm(direction)), 1e-30)
    expected = float(np.sum(gradient * direction))
    slope = slope_along(direction)
    # Wide enough for the kinks of a relu, which a step may cross.
    if abs(slope - expected) > 0.03 * max(1.0, abs(slope)):
        yield (
            f"Along the gradient by {name}, the slope of the output is {slope:.4g} by finite "
            f"differences, but {expected:.4g} by the gradient."
        )


def _slope(call, inputs, weights, index, direction):
    """Return the central difference along a direction of one input or weight."""

    def evaluate(step):
        offset = (step * direction).astype("float32")
        if index < len(inputs):
            return to_arrays(call(*inputs[:index], inputs[index] + offset, *inputs[index + 1 :]))
        weight = weights[index - len(inputs)]
        before = to_array(weight)
        weight.assign(before + offset)
        try:
            return to_arrays(call(*inputs))
        finally:
            weight.assign(before)

    changes = zip(evaluate(STEP), evaluate(-STEP), strict=True)
    changes = [a.astype("float64") - b for a, b in changes if a.dtype == "float32"]
    return sum(float(np.sum(x * _sum_weights(x.shape))) for x in changes) / (2 * STEP)
