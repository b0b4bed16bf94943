"""Quantisation of an export's large weights to eight bits."""

import contextlib
import uuid

import numpy as np
import tensorflow as tf
from keras import ops

from keras_attn import registry
from keras_attn.compat.variable_values import replace_value

# Smaller weights, such as biases and norms, stay float32.
MIN_SIZE = 1024


@contextlib.contextmanager
def quantized(model):
    """Yield a copy of a model whose large weights are stored as int8.

        q = round(w / s),   w' = s q,   s = max |w| / 127

    with one s for each index of the first or of the last axis, whichever is nearer to w. The file
    holds q and s; w' is computed once, when the export is loaded. A loaded export therefore
    computes as fast as one that was not quantised, in as much memory.

    Yields:
        The copy, which can be exported until the context ends, and the list of variables q and s to
        save beside its other weights.

    Reference: [Jacob et al., 2017](https://arxiv.org/abs/1712.05877), section 2.1, with a zero
        point of 0.
    """
    copy = registry.deserialize(registry.serialize(model))
    copy.set_weights(model.get_weights())
    matrices, variables = [], []
    for weight in copy.weights:
        is_large = len(weight.shape) > 1 and np.prod(weight.shape) >= MIN_SIZE
        if weight.dtype == "float32" and is_large:
            pair = [tf.Variable(x) for x in round_to_int8(ops.convert_to_numpy(weight))]
            variables += pair
            matrices.append(DequantizedMatrix(*pair))
            replace_value(weight, matrices[-1])
    try:
        yield copy, variables
    finally:
        for matrix in matrices:
            matrix.free()


def round_to_int8(weight):
    """Return the int8 array and its float32 scales, which broadcast to it."""
    candidates = []
    for scale_axis in (0, weight.ndim - 1):
        axes = tuple(axis for axis in range(weight.ndim) if axis != scale_axis)
        scale = np.maximum(np.abs(weight).max(axis=axes, keepdims=True), 1e-30) / 127
        integers = np.round(weight / scale)
        error = np.square(integers * scale - weight).sum()
        candidates.append((error, integers.astype("int8"), scale.astype("float32")))
    return min(candidates, key=lambda candidate: candidate[0])[1:]


class DequantizedMatrix(tf.saved_model.experimental.TrackableResource):
    """Float32 weight, computed from an int8 and a float32 variable when the export is loaded."""

    def __init__(self, integers, scale):
        super().__init__()
        self._integers, self._scale = integers, scale
        self.shape, self.dtype = integers.shape, scale.dtype
        # A process has one weight of a name, however often it loads the export, so the weight is
        # not destroyed with what was loaded. A session, as in a server, destroys its own.
        self._shared_name = f"keras_attn.{uuid.uuid4()}"
        self._initialize()

    def _create_resource(self):
        name = self._shared_name
        return tf.raw_ops.VarHandleOp(dtype=self.dtype, shape=self.shape, shared_name=name)

    def _initialize(self):
        weight = tf.cast(self._integers, self.dtype) * self._scale
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=weight)

    def __tf_tensor__(self, dtype=None, name=None):
        weight = tf.raw_ops.ReadVariableOp(resource=self.resource_handle, dtype=self.dtype)
        weight.set_shape(self.shape)
        return weight if dtype is None else tf.cast(weight, dtype)

    def __getitem__(self, index):
        return tf.convert_to_tensor(self)[index]

    def free(self):
        """Free the memory of the weight in this process."""
        tf.raw_ops.DestroyResourceOp(resource=self.resource_handle)
