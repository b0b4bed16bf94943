"""Outputs under a low precision, at small and at large positions; gradients."""

import functools

import keras
import numpy as np
from keras import ops

from keras_attn.testing.numerics import (
    compare,
    compute_gradients,
    has_length,
    is_float,
    random,
    to_array,
    to_arrays,
)

# The spacing of numbers at 1.
SPACING = {"mixed_bfloat16": 2**-7, "mixed_float16": 2**-10}
# Roundings of inputs, weights, sums and output add up to a few spacings.
ROUNDINGS = 4
LENGTHS = (4096, 1001, 11)
POSITIONS = (10, 1000, 4095)
QUERIES = 16
# Small, so that few relus change sides within a step.
STEP = 0.002


def precision(subject):
    """Mixed precision is finite and close to float32 on a long sequence."""
    layer = subject.copy()
    for length in LENGTHS:
        inputs = [_resize(x, length) for x in subject.inputs]
        try:
            expected = subject.call(layer, *inputs)
        except Exception:  # Any layer, which may refuse a length that is too long with any error.
            if length == LENGTHS[-1]:
                raise
            continue
        break
    for policy in SPACING:
        actual = subject.call(subject.copy(policy), *inputs)
        condition = f"on inputs of shape {inputs[0].shape}"
        yield from _compare_with_float32(policy, actual, expected, condition)


def attention_precision(subject):
    """Mixed precision is finite and close to float32 at positions 10, 1000 and 4095.

    Scores, if the layer returns them, are float32 and their rows sum to 1.
    """
    layer, expected = subject.copy(), {}
    for position in POSITIONS:
        x = random(1, position + 1, subject.hidden_dim, seed=12)
        try:
            expected[position] = x, subject.attend(layer, x[:, -QUERIES:], x)
        except ValueError:
            if position == POSITIONS[0]:
                raise
            break  # the layer refuses sequences of that length
    for policy in SPACING:
        low = subject.copy(policy)
        for position, (x, output) in expected.items():
            actual = subject.attend(low, x[:, -QUERIES:], x)
            yield from _compare_with_float32(policy, [actual], [output], f"at position {position}")
        if subject.accepts("return_attention_scores"):
            yield from _check_scores(subject, low, policy)


def large_logits(subject):
    """Logits beyond float16's largest number do no harm under mixed_float16."""
    layer = subject.copy("mixed_float16")
    query, x = 300 * subject.query, 300 * subject.value
    if not np.isfinite(subject.attend(layer, query, x)).all():
        yield (
            "Under mixed_float16, inputs of size 300, whose logits exceed 65504, were expected to "
            "give a finite output, but it is not."
        )


def check_scores_dtype(scores, condition=""):
    dtype = keras.backend.standardize_dtype(scores.dtype)
    if dtype != "float32":
        yield f"Scores of float32 were expected{condition}, but they are {dtype}."


def farthest_sum(subject, scores):
    """The row sum that is farthest from both 0 and 1, and its distance; with sinks only above 1."""
    sums = scores.astype("float64").sum(axis=-1)
    if getattr(subject.layer, "sinks", False):  # they take a part of the weight
        return sums.max(), sums.max() - 1
    distances = np.minimum(np.abs(sums - 1), np.abs(sums))
    return sums.flat[np.argmax(distances)], distances.max()


def _check_scores(subject, layer, policy):
    # Thirteen equal keys: a low precision rounds 1/13 visibly.
    x = np.broadcast_to(random(1, 1, subject.hidden_dim), (1, 13, subject.hidden_dim))
    _, scores = subject.raw_call(layer, x[:, -1:], x, return_attention_scores=True)
    yield from check_scores_dtype(scores, f" under {policy}")
    scores = keras.ops.convert_to_numpy(keras.ops.cast(scores, "float32"))
    total, distance = farthest_sum(subject, scores)
    if distance > 1e-4:
        yield (
            f"Under {policy}, the scores of 13 equal keys were expected to sum to 1, but sum to "
            f"{total:.5g}: the softmax is computed in low precision."
        )


def _compare_with_float32(policy, actual, expected, condition):
    """Report results under `policy` that are not finite, or far from those under float32."""
    if not all(np.isfinite(x).all() for x in actual):
        yield f"Under {policy} {condition}, the output is not finite."
        return
    sentence = f"Under {policy} {condition}, the output was expected close to that under float32"
    yield from compare(sentence, actual, expected, ROUNDINGS * SPACING[policy])


def _resize(x, length):
    """One row of `x`, repeated along the sequence."""
    if not has_length(x):
        return x[:1]
    return np.take(x[:1], np.arange(length) % x.shape[1], axis=1)


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
    actual = compute_gradients(lambda *tensors: weighted_sum(call(*tensors)), inputs, weights)
    names = [f"input {index}" for index in floats] + [f"weight {w.path}" for w in weights]
    for index, (name, gradient) in enumerate(zip(names, actual, strict=True)):
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
