"""Computations that a graph does not begin early."""

import tensorflow as tf


def delay_until(tensor):
    """Return an identity function whose result is available only after `tensor` is.

    A graph computes as early as it can, random numbers at its very start, and merges equal
    computations. The function adds a zero that no compiler can foresee (1 if `tensor` begins with
    NaN), so the recomputation neither starts early nor merges with the first run.
    """
    begins_with_nan = tf.reduce_any(tf.math.is_nan(tf.reshape(tensor, [-1])[:1]))
    return lambda x: x + tf.cast(begins_with_nan, x.dtype)


def first_float(tensors):
    return next(x for x in tensors if x.dtype.is_floating)
