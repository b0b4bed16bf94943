"""Quantisation of an export's large weights to eight or four bits."""

import contextlib
import functools

import numpy as np
import tensorflow as tf
from keras import ops

from keras_attn import registry
from keras_attn.compat.variable_values import replace_value
from keras_attn.export._saved_model.derived_weights import DerivedWeight
from keras_attn.export.golden_outputs import first_line

# Smaller weights, such as biases and norms, stay float32.
MIN_SIZE = 1024


@contextlib.contextmanager
def quantized(model, kind):
    """Yield a copy of a model whose large weights are stored as "int8" or "int4".

        q = round(w / s),   w' = s q

    The file holds q and the scales s, as the functions in `FORMATS` compute them; w' is computed
    once, when the export is loaded. A loaded export is therefore as fast and as large in memory as
    one that was not quantised.

    Yields:
        The copy, which can be exported until the context ends, and the list of variables of q and s
        to save beside its other weights.

    Reference: [Jacob et al., 2017](https://arxiv.org/abs/1712.05877), section 2.1, with a zero
        point of 0.
    """
    try:
        copy = registry.deserialize(registry.serialize(model))
        copy.set_weights(model.get_weights())
    except (TypeError, NotImplementedError, ValueError) as error:
        raise ValueError(
            "`quantize` needs a model that Keras can copy by its configuration: give a class of "
            "your own `get_config` and `keras.saving.register_keras_serializable`. "
            f"Received: {type(model).__name__}: {first_line(error)}"
        ) from error
    (to_arrays, restore), matrices, variables = FORMATS[kind], [], []
    for weight in copy.weights:
        if is_large(weight):
            arrays = [tf.Variable(x) for x in to_arrays(ops.convert_to_numpy(weight))]
            variables += arrays
            matrices.append(DerivedWeight(functools.partial(restore, *arrays, tuple(weight.shape))))
            replace_value(weight, matrices[-1])
    try:
        yield copy, variables
    finally:
        for matrix in matrices:
            matrix.free()


def is_large(weight):
    """Return True for a float32 array or variable that is stored in fewer bits."""
    return weight.dtype == "float32" and len(weight.shape) > 1 and np.prod(weight.shape) >= MIN_SIZE


# Weights that share a scale, one after another in memory.
GROUP = 32
# In a group with one large weight, the others gain more by a smaller scale than that one loses.
_SHARES_OF_RANGE = (1.0, 0.93, 0.86, 0.79)


def round_to_int8(weight):
    """Return int8 integers (groups, GROUP), float16 scales (groups, 1) and float32 columns (1, C).

        q = round(w / (s c)),   s = max |w / c| / 127

    for each group of `GROUP` weights. c is the root mean square of a column, the weights of one
    index of the last axis. So neither a large group nor a large column makes the steps of the
    others larger.
    """
    matrix = weight.reshape(-1, weight.shape[-1])
    columns = np.sqrt(np.square(matrix).mean(axis=0, keepdims=True))
    columns = np.where(columns == 0, 1, columns).astype("float32")
    groups = _groups(matrix / columns)
    scale = np.abs(groups).max(axis=1, keepdims=True) / 127
    # A scale that float16 rounds down must not push the largest weight out of the range.
    scale = np.maximum(scale, np.finfo("float16").tiny).astype("float16")
    integers = np.clip(np.round(groups / scale), -127, 127).astype("int8")
    return integers, scale, columns


def restore_int8(integers, scale, columns, shape):
    """Return the float32 tensor of the arrays of `round_to_int8`."""
    flat = tf.reshape(tf.cast(integers, tf.float32) * tf.cast(scale, tf.float32), (-1,))
    return tf.reshape(tf.reshape(flat[: np.prod(shape)], (-1, shape[-1])) * columns, shape)


def _groups(weight):
    """Return rows of `GROUP` weights, the last one filled with zeros."""
    return np.pad(weight.ravel(), (0, -weight.size % GROUP)).reshape(-1, GROUP)


def round_to_int4(weight):
    """Return two integers of four bits in each byte, (groups, GROUP / 2), and scales (groups, 1).

        q = min(max(round(w / s), -8), 7),   s = -c m / 8

    for each group of `GROUP` weights. m is the weight of largest magnitude, with its sign, so that
    it takes the eighth negative step. Of several c each group takes that of the smallest error. The
    scales are float16.
    """
    rows = _groups(weight)
    largest = np.take_along_axis(rows, np.abs(rows).argmax(axis=1)[:, None], axis=1)
    best = None
    for share in _SHARES_OF_RANGE:
        scale = (share * largest / -8).astype("float16")
        used = scale.astype("float32")
        integers = np.clip(np.round(rows / np.where(used == 0, 1, used)), -8, 7)
        error = np.square(integers * used - rows).sum(axis=1, keepdims=True)
        trial = error, integers, scale
        if best is not None:
            trial = [np.where(error < best[0], *pair) for pair in zip(trial, best, strict=True)]
        best = trial
    codes = (best[1] + 8).astype("uint8")
    return codes[:, ::2] | codes[:, 1::2] << 4, best[2]


def restore_int4(codes, scale, shape):
    """Return the float32 tensor of the arrays of `round_to_int4`."""
    pairs = tf.stack([tf.bitwise.bitwise_and(codes, 15), tf.bitwise.right_shift(codes, 4)], axis=2)
    integers = tf.cast(tf.reshape(pairs, (-1, GROUP)), tf.float32) - 8
    flat = tf.reshape(integers * tf.cast(scale, tf.float32), (-1,))
    return tf.reshape(flat[: np.prod(shape)], shape)


FORMATS = {"int8": (round_to_int8, restore_int8), "int4": (round_to_int4, restore_int4)}
