"""`keras_attn.backend.remat.reversible` as a plain loop, and the gradients of a training step."""

import numpy as np
import tensorflow as tf
from keras import ops


def in_turn(functions, first, second, operands=(), *, add_loss=None):
    """Keep all results, where the package's function recovers them."""
    for function in functions:
        change = function(second, *operands)
        first, second = second, first + ops.cast(change, first.dtype)
    return first, second


def training_gradients(layer, x, in_graph=False):
    """Return the output, and gradients of a sum that weighs each feature differently."""

    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            output = layer(x, training=True)
            loss = tf.reduce_sum(output * tf.cos(tf.range(float(output.shape[-1]))))
        return output, *tape.gradient(loss, [x, *(w.value for w in layer.trainable_variables)])

    run = tf.function(run) if in_graph else run
    return [np.asarray(result) for result in run(tf.constant(x))]
