"""The operations that TensorFlow has registered in this process.

Private: `tensorflow.python.framework.op_def_registry`. Holds for TensorFlow 2.21, which keras_attn
requires.
Upstream:
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/python/framework/op_def_registry.py
Remove when TensorFlow exports the registry; `tf.raw_ops` lacks operations without a Python name.
"""

from tensorflow.python.framework import op_def_registry


def is_registered(name):
    """Return True if an operation of this name exists."""
    return op_def_registry.get(name) is not None
