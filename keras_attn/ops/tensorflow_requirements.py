"""Assertions on TensorFlow; XLA leaves them out."""

import tensorflow as tf


def require(condition, message):
    tf.debugging.Assert(condition, [message])
