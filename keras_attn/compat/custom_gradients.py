"""Custom gradients of TensorFlow that are freed with their graph.

Private: `_graph_mode_decorator` of `tensorflow.python.ops.custom_gradient`, which this file wraps,
and the dict in `tensorflow.python.framework.ops.gradient_registry`. Each call of a
`tf.custom_gradient` in a graph registers its gradient under a new name for good. The gradient holds
the graph: neither is ever freed, and so a trained model stays in memory after it is deleted.
`keras.remat` and `tf.nn.silu` have the same leak. Here the graph holds the gradient, and the
registry refers to it as long as it exists. Holds for TensorFlow 2.21, which keras_attn requires.
Upstream: https://github.com/tensorflow/tensorflow/issues/97697 and
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/python/ops/custom_gradient.py
Remove when TensorFlow frees what `tf.custom_gradient` registers. One name for all gradients of a
kind would not do: a SavedModel stores one gradient per name.
"""

import functools
import weakref

import tensorflow as tf
from tensorflow.python.framework.ops import gradient_registry
from tensorflow.python.ops import custom_gradient

_call_in_graph = custom_gradient._graph_mode_decorator


def free_custom_gradients():
    """Free what `tf.custom_gradient` registers for a graph when the graph is freed."""
    custom_gradient._graph_mode_decorator = _call_and_release


@functools.wraps(_call_in_graph)
def _call_and_release(function, arguments, keywords):
    results = _call_in_graph(function, arguments, keywords)
    # All results come from the one operation that has the gradient.
    tensors = tf.nest.flatten(results, expand_composites=True)
    operation = next((x.op for x in tensors if tf.is_tensor(x) and x.op.type == "IdentityN"), None)
    if operation is not None:
        _release(operation)
    return results


def _release(operation):
    """Let only the operation's graph hold the gradient, and the registry as long as it exists."""
    name, entries = operation.get_attr("_gradient_op_type").decode(), gradient_registry._registry
    gradient, graph = entries[name]["type"], operation.graph
    graph.custom_gradients = [*getattr(graph, "custom_gradients", ()), gradient]
    reference = weakref.ref(gradient, lambda _: entries.pop(name))
    entries[name]["type"] = lambda op, *upstream: reference()(op, *upstream)
