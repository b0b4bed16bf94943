"""Single operations that differ by backend: on tensors, and calls from graphs to Python."""

import numbers

import numpy as np
from keras import ops, random

from keras_attn.backend import per_backend


@per_backend
def require(condition, message, x):
    """Return the tensor x; fail with `message` if `condition`, a bool scalar, is False.

    What needs the result waits for the check. XLA and other backends than TensorFlow leave it out.
    """
    return x


@per_backend
def softmax_with_logsumexp(logits):
    """Return softmax(logits) and log(sum(exp(logits))) over the last axis, which is kept."""
    # Keras warns of a softmax over a single key, which is ordinary here.
    weights = ops.ones_like(logits) if logits.shape[-1] == 1 else ops.softmax(logits, axis=-1)
    return weights, ops.logsumexp(logits, axis=-1, keepdims=True)


@per_backend
def read(variable):
    """Return the value of a variable as a tensor."""
    return variable.value


@per_backend
def einsum(subscripts, *tensors):
    """Return an Einstein sum, on TensorFlow one operation without transposes around a product."""
    return ops.einsum(subscripts, *tensors)


@per_backend
def take_rows(table, indices):
    """Return rows (..., D) of a table (V, D) at int32 indices (...).

    For an index outside [0, V) TensorFlow raises on a CPU, and reads the first or the last row
    under XLA; JAX gives NaN.
    """
    # Keras reads negative indices from the end.
    return ops.take(table, ops.where(indices < 0, table.shape[0], indices), axis=0)


@per_backend
def gather_rows(x, indices):
    """Return x (B, n, ...) at int32 indices (B, m) of at least 0 of each row, (B, m, ...)."""
    batch_size, rows = ops.shape(indices)[0], x.shape[1]
    first = ops.expand_dims(ops.arange(batch_size, dtype="int32"), 1) * rows
    flat = ops.reshape(x, (batch_size * rows, *ops.shape(x)[2:]))
    return ops.take(flat, first + ops.cast(indices, "int32"), axis=0)


@per_backend
def multiply_transposed(x, y):
    """Return the products (..., T, S) of rows (..., T, H) and rows (..., S, H)."""
    return ops.matmul(x, ops.swapaxes(y, -1, -2))


@per_backend
def crossentropy(labels, logits, label_smoothing):
    """Return the label-smoothed cross-entropy of labels (...) and logits (..., V), as its dtype."""
    label_logit = ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1)  # (..., 1)
    losses = ops.logsumexp(logits, axis=-1) - (1.0 - label_smoothing) * ops.squeeze(label_logit, -1)
    if label_smoothing:
        losses = losses - label_smoothing * ops.mean(logits, axis=-1)
    return losses


@per_backend
def normalize(x, epsilon, scale, shift=None):
    """Return (x - mean) / sqrt(variance + epsilon) * scale + shift over the last axis.

    `scale` and `shift` (D,) have the dtype of x (..., D).
    """
    # Fewer operations than Keras's function, which spends some on the axes.
    x = x - ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(x), axis=-1, keepdims=True)
    x = x * ops.rsqrt(variance + epsilon) * scale
    return x if shift is None else x + shift


@per_backend
def uniform(shape, seed=None):
    """Return uniform numbers in [0, 1); the same seed gives the same numbers under XLA too."""
    if isinstance(seed, numbers.Integral):
        seed = int(seed) % 2**32  # Keras holds seeds as uint32
    return random.uniform(shape, seed=seed)


@per_backend
def is_symbolic(x):
    """Return True if the tensor has no value yet, because a graph is built or a trace is run."""
    return False


@per_backend
def can_branch(tensors):
    """Return True if a loop or branch over these tensors has a gradient where it is built."""
    return True


@per_backend
def is_in_step():
    """Return True in a step of `fit`, `evaluate` or `predict`, or eagerly; False in an export."""
    return True


def switch(index, branches):
    """Return the results of `branches[index]()`, of the last one for a greater index.

    Args:
        index: int32 scalar.
        branches: functions without arguments, whose results have the same shapes.
    """
    # Nested: LiteRT converts a condition, but no choice of several.
    first, *others = branches
    return ops.cond(index <= 0, first, lambda: switch(index - 1, others)) if others else first()


@per_backend
def has_fused_attention(query, key, value):
    """Return True if a fused kernel computes attention and its gradient for tensors by head."""
    return False


@per_backend
def call_on_host(function, x, then=None):
    """Call `function` with the NumPy array of a tensor, and return `then()`, computed after it.

    While a graph is built or a trace is run, the call is a step of what is compiled. The order of
    calls that share no tensor is undefined. `x` may be a list of sizes, ints and scalars; if all
    are ints the call is made at once.
    """
    function(np.asarray(ops.convert_to_numpy(x)))
    return None if then is None else then()


@per_backend
def wait_for_host_calls():
    """Make the calls that compiled functions have asked for, if they are not made yet."""
