"""Loops and branches that TensorFlow can differentiate.

Private: `tensorflow.python.ops.control_flow_util.GraphOrParentsInXlaContext`. Holds for TensorFlow
2.21, which keras_attn requires.
Upstream:
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/python/ops/control_flow_util.py
Remove when XLA compiles the gradient of `tf.while_loop` and `tf.cond` for dynamic shapes, or when
TensorFlow tells by a public name that XLA will compile a graph.
"""

import tensorflow as tf
from tensorflow.python.ops import control_flow_util


def is_in_xla():
    """Return True if XLA compiles what is built here."""
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def has_gradient(tensors):
    """Return True if a loop or branch over these tensors, in the current graph, has a gradient.

    XLA needs every shape as a constant. The shapes that the backward pass reads from the steps of a
    loop or from a branch are not constants, unless all sizes are known when the graph is built.
    """
    if not is_in_xla():
        return True
    tensors = [x for x in tf.nest.flatten(tensors) if tf.is_tensor(x)]
    return all(x.shape.is_fully_defined() for x in tensors)
