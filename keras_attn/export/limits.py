"""What an export reads of its inputs."""

import tensorflow as tf


def real(rows, lengths):
    """Bool [B, T], whether a step of `rows` [B, T, ...] is among the first `lengths` [B] of its row.

    Another number of lengths than of rows is an error, also inside a graph.
    """
    size = tf.shape(rows)
    is_one_each = tf.equal(tf.shape(lengths)[0], size[0])
    message = "lengths must be one number for each row"
    with tf.control_dependencies([tf.debugging.Assert(is_one_each, [message])]):
        return tf.sequence_mask(lengths, size[1])


def check_positions(name, length, positions):
    """Raises a `ValueError` unless so many tokens can be written at so many positions."""
    if length > positions:
        raise ValueError(
            f"`{name}` must be at most {positions}, the number of the model's positions. "
            f"Received: {name}={length}."
        )
