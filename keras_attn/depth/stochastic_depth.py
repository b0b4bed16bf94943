"""Stochastic depth: in training, rows of a batch leave out blocks at random."""

import keras
import numpy as np
from keras import backend, ops

from keras_attn.ops.shapes import size


def row_scales(x, rate, num_blocks, training, seed):
    """Return for each block the factors of its change of the rows of x, (B, 1, 1).

        factor = 1 / p_l with probability p_l = 1 - rate l / L, else 0

    All are drawn at once and outside of the blocks, so that a backward pass which computes a block
    again reads the same numbers. Without a rate, and outside of training, they are None.
    """
    if not (rate and training):
        return [None] * num_blocks
    kept = 1.0 - rate * np.arange(1, num_blocks + 1) / num_blocks
    dtype = backend.result_type(x.dtype, "float32")
    shape = (num_blocks, size(x, 0), 1, 1)
    numbers = ops.unstack(keras.random.uniform(shape, dtype=dtype, seed=seed), num_blocks)
    return [ops.cast(u < p, dtype) / p for u, p in zip(numbers, kept.tolist(), strict=True)]


def scale_change(before, after, scale):
    """Return before + scale (after - before), in the precision of `scale`; `after` for None."""
    if scale is None:
        return after
    x = ops.cast(before, scale.dtype)
    return ops.cast(x + scale * (ops.cast(after, scale.dtype) - x), after.dtype)
