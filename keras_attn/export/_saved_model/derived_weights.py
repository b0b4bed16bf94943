"""Weights of an export that are computed from its variables when it is loaded."""

import contextlib
import math
import uuid

import keras
import tensorflow as tf

from keras_attn.backend.loop_invariants import loop_invariants, loop_scope
from keras_attn.compat.variable_values import stored_value

# Most numbers of a weight that is joined with others.
SMALL = 4096


class DerivedWeight(tf.saved_model.experimental.TrackableResource):
    """Weight, a tensor that `compute` makes of tracked variables, when the export is loaded."""

    def __init__(self, compute):
        super().__init__()
        self.compute = compute
        value = compute()
        self.shape, self.dtype = value.shape, value.dtype
        # A process has one weight of a name, however often it loads the export, so the weight is
        # not destroyed with what was loaded. A session, as in a server, destroys its own.
        self._shared_name = f"keras_attn.{uuid.uuid4()}"
        self._assign(value)

    def _create_resource(self):
        name = self._shared_name
        return tf.raw_ops.VarHandleOp(dtype=self.dtype, shape=self.shape, shared_name=name)

    def _initialize(self):
        self._assign(self.compute())

    def _assign(self, value):
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=value)

    def __tf_tensor__(self, dtype=None, name=None):
        weight = tf.raw_ops.ReadVariableOp(resource=self.resource_handle, dtype=self.dtype)
        weight.set_shape(self.shape)
        return weight if dtype is None else tf.cast(weight, dtype)

    def __getitem__(self, index):
        return tf.convert_to_tensor(self)[index]

    def free(self):
        """Free the memory of the weight in this process."""
        tf.raw_ops.DestroyResourceOp(resource=self.resource_handle)


class PreparedWeights:
    """Variables that a decoder reads in each call of an export: few, made of the model's weights.

    A call costs some microseconds for each variable. So the small weights are joined into one
    variable, and each other weight is read only where it is used. `generate` computes in each call
    what layers make of their weights, such as joined kernels. Here that is computed when the export
    is loaded: an assignment to a variable of a loaded export does not change it. The files hold the
    weights only; in memory are both.

    Attributes:
        weights: list of the `DerivedWeight`s.
    """

    def __init__(self):
        self.weights, self._values = [], {}

    def read(self, layer, name, compute):
        """Return the tensor `compute()` of a layer's weights."""
        return self._read((layer, name), layer.weights, compute)

    def scope(self, variables):
        """Return a scope in which variables are read in the graph that is now built."""
        small = [v for v in variables if v.dtype == "float32" and math.prod(v.shape) <= SMALL]
        if not small:
            return GraphScope(variables)
        flat = self._read(
            (*small,), small, lambda: tf.concat([tf.reshape(v.value, [-1]) for v in small], 0)
        )
        parts = tf.split(flat, [math.prod(v.shape) for v in small])
        pairs = zip(small, parts, strict=True)
        return GraphScope(variables, [(v, tf.reshape(x, v.shape)) for v, x in pairs])

    def _read(self, owner, variables, compute):
        """Return `compute()` as a weight of the export, the same for one owner."""

        def compute_alone():
            # The order in which weights are derived is undefined: one does not read another.
            values = [(variable, stored_value(variable)) for variable in variables]
            own = [(v, x.compute()) for v, x in values if isinstance(x, DerivedWeight)]
            with loop_invariants(), keras.StatelessScope(own):
                return compute()

        key = tuple(x if isinstance(x, (str, tuple)) else id(x) for x in owner)
        if key not in self._values:
            with tf.init_scope():  # with values, in the middle of a graph
                self.weights.append(DerivedWeight(compute_alone))
            self._values[key] = owner, self.weights[-1]  # the owner too: its id could be another's
        return tf.convert_to_tensor(self._values[key][1])


class GraphScope(keras.StatelessScope):
    """Scope in which a variable is read once, in this graph, when a graph inside of it uses it."""

    def __init__(self, variables, values=()):
        super().__init__(values)
        self._graph = tf.compat.v1.get_default_graph()
        self._ids = {id(variable) for variable in variables}

    def get_current_value(self, variable):
        """Return the value of a variable; None for one of others."""
        value = super().get_current_value(variable)
        if value is None and id(variable) in self._ids:
            with self._graph.as_default():
                value = tf.convert_to_tensor(stored_value(variable))
            self.add_update((variable, value))
        return value


@contextlib.contextmanager
def prepared_weights():
    """Yield the `PreparedWeights` of all graphs that are built inside, for an export to hold."""
    outer, loop_scope.prepared = loop_scope.prepared, PreparedWeights()
    prepared = loop_scope.prepared
    try:
        yield prepared
    finally:
        loop_scope.prepared = outer
        for weight in prepared.weights:
            weight.free()
