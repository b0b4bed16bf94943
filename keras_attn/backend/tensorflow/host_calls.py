"""Calls of Python functions by TensorFlow graphs."""

import numpy as np
import tensorflow as tf

from keras_attn.compat.tensorflow_control_flow import is_in_xla


def call_on_host(function, x, then=None):
    is_known = isinstance(x, (list, tuple)) and all(isinstance(size, int) for size in x)
    if tf.executing_eagerly() or is_known:
        function(np.asarray(x))
        return None if then is None else then()
    if is_in_xla():
        raise ValueError(
            "Numbers cannot leave a function that XLA compiles on TensorFlow: set "
            "`model.jit_compile = False`. Received: jit_compile=True."
        )
    call = tf.numpy_function(function, [tf.convert_to_tensor(x)], [])
    with tf.control_dependencies([call]):
        return None if then is None else then()
