"""Quantisation of an export's large weights to eight or four bits."""

import contextlib
import uuid

import numpy as np
import tensorflow as tf
from keras import ops

from keras_attn import registry
from keras_attn.compat.variable_values import replace_value
from keras_attn.export._saved_model.rounding import FORMATS

# Smaller weights, such as biases and norms, stay float32.
MIN_SIZE = 1024


@contextlib.contextmanager
def quantized(model, kind):
    """Yield a copy of a model whose large weights are stored as "int8" or "int4".

        q = round(w / s),   w' = s q

    The file holds q and the scales s, as the format in `rounding` computes them; w' is computed
    once, when the export is loaded. A loaded export is therefore as fast and as large in memory as
    one that was not quantised.

    Yields:
        The copy, which can be exported until the context ends, and the list of variables q and s to
        save beside its other weights.

    Reference: [Jacob et al., 2017](https://arxiv.org/abs/1712.05877), section 2.1, with a zero
        point of 0.
    """
    copy = registry.deserialize(registry.serialize(model))
    copy.set_weights(model.get_weights())
    (to_arrays, restore), matrices, variables = FORMATS[kind], [], []
    for weight in copy.weights:
        is_large = len(weight.shape) > 1 and np.prod(weight.shape) >= MIN_SIZE
        if weight.dtype == "float32" and is_large:
            pair = [tf.Variable(x) for x in to_arrays(ops.convert_to_numpy(weight))]
            variables += pair
            matrices.append(DequantizedMatrix(pair, tuple(weight.shape), restore))
            replace_value(weight, matrices[-1])
    try:
        yield copy, variables
    finally:
        for matrix in matrices:
            matrix.free()


class DequantizedMatrix(tf.saved_model.experimental.TrackableResource):
    """Float32 weight, computed from variables by `restore` when the export is loaded."""

    def __init__(self, variables, shape, restore):
        super().__init__()
        self._variables, self._restore = variables, restore
        self.shape, self.dtype = tf.TensorShape(shape), tf.float32
        # A process has one weight of a name, however often it loads the export, so the weight is
        # not destroyed with what was loaded. A session, as in a server, destroys its own.
        self._shared_name = f"keras_attn.{uuid.uuid4()}"
        self._initialize()

    def _create_resource(self):
        name = self._shared_name
        return tf.raw_ops.VarHandleOp(dtype=self.dtype, shape=self.shape, shared_name=name)

    def _initialize(self):
        weight = self._restore(*self._variables, tuple(self.shape))
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
