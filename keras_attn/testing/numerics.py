"""Arrays on any backend: test data, conversion, comparison and gradients."""

import keras
import numpy as np
from keras import ops


def random(*shape, seed=0, scale=1.0):
    """Normal numbers, the same ones for the same shape and seed."""
    return round_to_8_bits(scale * np.random.default_rng([seed, *shape]).standard_normal(shape))


def round_to_8_bits(x):
    """Round to 8 significant bits: exact in float32, float16 and bfloat16.

    A layer under a low precision then receives the same inputs and weights as under float32, so
    any difference comes from its own arithmetic.
    """
    mantissa, exponent = np.frexp(np.asarray(x, "float64"))
    return np.ldexp(np.round(mantissa * 256) / 256, exponent).astype("float32")


def is_float(x):
    return keras.backend.is_float_dtype(x.dtype)


def describe_shapes(arrays):
    return ", ".join(str(x.shape) for x in arrays)


def has_length(x):
    """True if the second axis is a sequence: of vectors, or of ids."""
    return x.ndim >= 3 or (x.ndim == 2 and not is_float(x))


def to_array(x):
    """Convert a tensor or variable to an array, floats to float32."""
    x = ops.convert_to_tensor(x)
    return ops.convert_to_numpy(ops.cast(x, "float32") if is_float(x) else x)


def to_arrays(results):
    """Convert nested tensors to a flat list of arrays, floats to float32."""
    return [to_array(x) for x in keras.tree.flatten(results)]


def equal(actual, expected):
    """True if two lists of arrays are the same, bit by bit."""
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(actual, expected, strict=True))


def describe_difference(actual, expected, tolerance=1e-5):
    """Describe the largest difference between two lists of arrays; None if they are close.

    Close means within `tolerance` of the largest number expected, or of 1 if that is smaller.
    """
    for a, b in zip(actual, expected, strict=True):
        if a.shape != b.shape:
            return f"the shape is {a.shape} instead of {b.shape}"
        if not a.size:
            continue
        difference = np.abs(a.astype("float64") - b.astype("float64"))
        worst = np.unravel_index(np.argmax(np.nan_to_num(difference, nan=np.inf)), a.shape)
        scale = max(1.0, np.max(np.abs(b)))
        if not difference[worst] <= tolerance * scale:
            index = tuple(int(i) for i in worst)
            return f"the value at index {index} is {a[worst]:.6g} instead of {b[worst]:.6g}"
    return None


def compare(sentence, actual, expected, tolerance=1e-5):
    """Yield `sentence` with the largest difference of two lists of arrays if they are not close."""
    difference = describe_difference(actual, expected, tolerance)
    if difference:
        yield f"{sentence}, but {difference}."


def compute_gradients(function, inputs, variables=()):
    """Return the gradients of the scalar `function(*inputs)` by the inputs, then by the variables.

    They are arrays; None (on JAX: zeros) where the scalar does not depend on the input or variable.
    """
    tensors = [ops.convert_to_tensor(x) for x in inputs]
    actual = _BACKENDS[keras.backend.backend()](function, tensors, list(variables))
    return [None if x is None else ops.convert_to_numpy(x) for x in actual]


def _tensorflow(function, tensors, variables):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(tensors)
        total = function(*tensors)
    actual = tape.gradient(total, [*tensors, *(variable.value for variable in variables)])
    return [None if x is None else tf.convert_to_tensor(x) for x in actual]


def _jax(function, tensors, variables):
    import jax

    def run(tensors, values):
        with keras.StatelessScope(state_mapping=zip(variables, values, strict=True)):
            return function(*tensors)

    by_inputs, by_variables = jax.grad(run, argnums=(0, 1))(tensors, [v.value for v in variables])
    return [*by_inputs, *by_variables]


def _torch(function, tensors, variables):
    import torch

    tensors = [tensor.detach().requires_grad_() for tensor in tensors]
    sources = [*tensors, *(variable.value for variable in variables)]
    return torch.autograd.grad(function(*tensors), sources, allow_unused=True)


_BACKENDS = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}
