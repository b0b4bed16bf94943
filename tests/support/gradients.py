"""The output of an attention layer, and the gradients of its inputs and weights."""

import oracles
import tensorflow as tf


def output_and_gradients(layer, *inputs, upstream=1.0, **call):
    """Return arrays: the output, and gradients of a sum that weighs each feature differently.

    One input attends to itself; of two, the first attends to the second.
    """
    tensors = [tf.constant(x) for x in inputs]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        output = layer(*(tensors * 2)[:2], **call)
        weighted = tf.cast(output, "float32") * tf.cos(tf.range(float(output.shape[-1])))
        loss = tf.reduce_sum(weighted * tf.cast(upstream, "float32"))
    sources = [*tensors, *(weight.value for weight in layer.trainable_weights)]
    gradients = tape.gradient(loss, sources, unconnected_gradients="zero")
    # Some gradients are of gathered rows, which become tensors here.
    return [oracles.numpy_of(tf.convert_to_tensor(x)) for x in (output, *gradients)]
