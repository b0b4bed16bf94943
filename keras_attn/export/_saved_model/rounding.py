"""Weights in eight or four bits: the arrays to store, and the TensorFlow graph that restores them.

A format is a pair of functions: from a float32 array to a list of arrays, and from their tensors
and the shape back to float32.
"""

import numpy as np
import tensorflow as tf

# Weights that share a scale in four bits, one after another in memory.
GROUP = 32
# In a group with one large weight, the others gain more by a smaller scale than that one loses.
_SHARES_OF_RANGE = (1.0, 0.93, 0.86, 0.79)


def round_to_int8(weight):
    """Return the int8 array and its float32 scales, which broadcast to it.

        q = round(w / s),   s = max |w| / 127

    with one s for each index of the first or of the last axis, whichever is nearer to w.
    """
    candidates = []
    for scale_axis in (0, weight.ndim - 1):
        axes = tuple(axis for axis in range(weight.ndim) if axis != scale_axis)
        scale = np.maximum(np.abs(weight).max(axis=axes, keepdims=True), 1e-30) / 127
        integers = np.round(weight / scale)
        error = np.square(integers * scale - weight).sum()
        candidates.append((error, integers.astype("int8"), scale.astype("float32")))
    return min(candidates, key=lambda candidate: candidate[0])[1:]


def restore_int8(integers, scale, shape):
    """Return the float32 tensor of the arrays of `round_to_int8`."""
    return tf.reshape(tf.cast(integers, scale.dtype) * scale, shape)


def round_to_int4(weight):
    """Return two integers of four bits in each byte, (groups, GROUP / 2), and scales (groups, 1).

        q = min(max(round(w / s), -8), 7),   s = -c m / 8

    for each group of `GROUP` weights. m is the weight of largest magnitude, with its sign, so that
    it takes the eighth negative step. Of several c each group takes that of the smallest error. The
    scales are float16.
    """
    rest = -weight.size % GROUP
    rows = np.pad(weight.ravel(), (0, rest)).reshape(-1, GROUP)
    largest = np.take_along_axis(rows, np.abs(rows).argmax(axis=1)[:, None], axis=1)
    best = None
    for share in _SHARES_OF_RANGE:
        scale = (share * largest / -8).astype("float16")
        used = scale.astype("float32")
        integers = np.clip(np.round(rows / np.where(used == 0, 1, used)), -8, 7)
        error = np.square(integers * used - rows).sum(axis=1, keepdims=True)
        found = error, integers, scale
        if best is not None:
            found = [np.where(error < best[0], *pair) for pair in zip(found, best, strict=True)]
        best = found
    codes = (best[1] + 8).astype("uint8")
    return codes[:, ::2] | codes[:, 1::2] << 4, best[2]


def restore_int4(codes, scale, shape):
    """Return the float32 tensor of the arrays of `round_to_int4`."""
    pairs = tf.stack([tf.bitwise.bitwise_and(codes, 15), tf.bitwise.right_shift(codes, 4)], axis=2)
    integers = tf.cast(tf.reshape(pairs, (-1, GROUP)), tf.float32) - 8
    flat = tf.reshape(integers * tf.cast(scale, tf.float32), (-1,))
    return tf.reshape(flat[: np.prod(shape)], shape)


FORMATS = {"int8": (round_to_int8, restore_int8), "int4": (round_to_int4, restore_int4)}
