"""How much an export reads and writes."""

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


def check_lengths(model, max_length, **read):
    """How many tokens are written, and read at most under a name of the caller's.

    Returns:
        The positions that the model has for what it writes; None for any number, or if a model of
        the user's own does not say.

    Raises:
        ValueError: if a length is below 1, or there are too few positions.
    """
    for name, length in {"max_length": max_length, **read}.items():
        if length < 1:
            raise ValueError(f"`{name}` must be at least 1. Received: {name}={length}.")
    positions = getattr(model, "max_length", None)
    if positions is not None and max_length > positions:
        raise ValueError(
            f"`max_length` must be at most {positions}, the number of the model's positions. "
            f"Received: max_length={max_length}."
        )
    return positions
