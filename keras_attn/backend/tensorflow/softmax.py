"""A softmax that also tells the log of its denominator, on TensorFlow."""

import tensorflow as tf


@tf.custom_gradient
def softmax_and_log_sum(logits):
    """softmax(logits) and log(sum(exp(logits))) over the last axis, which is kept.

    The greatest weight is at least one over the number of keys, so its logarithm is exact: no
    second pass of exponentials is needed.
    """
    weights = tf.nn.softmax(logits)
    top = tf.reduce_max(logits, axis=-1, keepdims=True)
    log_sum = top - tf.math.log(tf.reduce_max(weights, axis=-1, keepdims=True))

    def gradient(weights_gradient, log_sum_gradient):
        mean = tf.reduce_sum(weights_gradient * weights, axis=-1, keepdims=True)
        return weights * (weights_gradient - (mean - log_sum_gradient))

    return (weights, log_sum), gradient
