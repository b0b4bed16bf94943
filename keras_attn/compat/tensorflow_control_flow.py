"""What TensorFlow can differentiate loops and branches over."""

import tensorflow as tf
from tensorflow.python.ops import control_flow_util


def has_gradient(tensors):
    """Whether a loop or a branch over these tensors, here in the graph, has one.

    XLA asks for every shape as a constant, but what the backward pass takes from a loop's steps or
    from a branch is none: so all sizes must be known as the graph is made, when TensorFlow makes
    constants of them.
    """
    if not control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        return True
    tensors = [x for x in tf.nest.flatten(tensors) if tf.is_tensor(x)]
    return all(x.shape.is_fully_defined() for x in tensors)
