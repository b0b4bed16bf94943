"""Weights of eight bits in the file of an export."""

import contextlib
import uuid

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_attn.compat.variable_values import replace_value

# Smaller weights, such as biases and norms, stay as they are.
FEWEST = 1024


@contextlib.contextmanager
def quantized(model):
    """A copy of a model whose large weights are kept as int8.

        q = round(w / s),   w' = s q,   s = max |w| / 127

    with one s for each index of the first or of the last axis, whichever comes nearer to w. In the
    file there are q and s; w' is made of them once, when the export is loaded, so that it computes
    as fast as one that was not quantised, in as much memory.

    Args:
        model: a Keras model that gives its configuration.

    Returns:
        The copy, which serves to be exported until the context ends, and the variables to be kept
        in the file beside its weights.

    Reference: [Jacob et al., 2017](https://arxiv.org/abs/1712.05877), section 2.1, with a zero
        point of 0.
    """
    saving = keras.saving
    copy = saving.deserialize_keras_object(saving.serialize_keras_object(model))
    copy.set_weights(model.get_weights())
    matrices, kept = [], []
    for weight in copy.weights:
        is_large = len(weight.shape) > 1 and np.prod(weight.shape) >= FEWEST
        if weight.dtype == "float32" and is_large:
            whole, scale = map(tf.Variable, rounded(ops.convert_to_numpy(weight)))
            matrices.append(Matrix(whole, scale))
            kept += [whole, scale]
            replace_value(weight, matrices[-1])
    try:
        yield copy, kept
    finally:
        for matrix in matrices:
            matrix.free()


def rounded(weight):
    """The int8 array and its scales, float32, which broadcast to it."""
    found = []
    for kept in (0, weight.ndim - 1):
        axes = tuple(axis for axis in range(weight.ndim) if axis != kept)
        scale = np.maximum(np.abs(weight).max(axis=axes, keepdims=True), 1e-30) / 127
        whole = np.round(weight / scale)
        error = np.square(whole * scale - weight).sum()
        found.append((error, whole.astype("int8"), scale.astype("float32")))
    return min(found, key=lambda each: each[0])[1:]


class Matrix(tf.saved_model.experimental.TrackableResource):
    """A float32 weight that is made of an int8 one whenever the export is loaded.

    Args:
        whole: int8 variable. scale: float32 variable, which broadcasts to it.
    """

    def __init__(self, whole, scale):
        super().__init__()
        self._whole, self._scale = whole, scale
        self.shape, self.dtype = whole.shape, scale.dtype
        # A process has one weight of a name, however often it loads the export; it is therefore
        # not destroyed with what was loaded. A session, as a server has, destroys its own.
        self._shared_name = f"keras_attn.{uuid.uuid4()}"
        self._initialize()

    def _create_resource(self):
        return tf.raw_ops.VarHandleOp(
            dtype=self.dtype, shape=self.shape, shared_name=self._shared_name
        )

    def _initialize(self):
        weight = tf.cast(self._whole, self.dtype) * self._scale
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=weight)

    def __tf_tensor__(self, dtype=None, name=None):
        weight = tf.raw_ops.ReadVariableOp(resource=self.resource_handle, dtype=self.dtype)
        weight.set_shape(self.shape)
        return weight if dtype is None else tf.cast(weight, dtype)

    def free(self):
        """Gives the memory back, in this process."""
        tf.raw_ops.DestroyResourceOp(resource=self.resource_handle)
