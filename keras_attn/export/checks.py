"""Checks of models, tokenizers and lengths that the formats share."""

import tensorflow as tf


def length_mask(rows, lengths):
    """Return a bool mask (B, T), True at the first `lengths` (B,) steps of `rows` (B, T, ...).

    A number of lengths that is not the number of rows is an error, also inside a graph.
    """
    size = tf.shape(rows)
    is_one_each = tf.equal(tf.shape(lengths)[0], size[0])
    message = "lengths must be one number for each row"
    with tf.control_dependencies([tf.debugging.Assert(is_one_each, [message])]):
        return tf.sequence_mask(lengths, size[1])


def check_lengths(model, max_length, **read_lengths):
    """Check the number of tokens to generate, and the greatest numbers of tokens to read.

    Args:
        model: may have an attribute `max_length`, its number of positions.
        max_length: int. Most tokens to generate.
        **read_lengths: int by argument name, for the error.

    Returns:
        The model's number of positions; None if it has no limit or does not declare one.

    Raises:
        ValueError: if a length is below 1, or the model has too few positions.
    """
    for name, length in {"max_length": max_length, **read_lengths}.items():
        if length < 1:
            raise ValueError(f"`{name}` must be at least 1. Received: {name}={length}.")
    positions = getattr(model, "max_length", None)
    if positions is not None and max_length > positions:
        raise ValueError(
            f"`max_length` must be at most {positions}, the number of the model's positions. "
            f"Received: max_length={max_length}."
        )
    return positions


def check_float32(model):
    """Raise a `ValueError` if a layer of the model computes in another dtype than float32."""
    dtypes = {layer.compute_dtype for layer in model.layers} - {"float32"}
    if dtypes:
        raise ValueError(
            "`model` must compute in float32: load it under that policy. "
            f"Received: {', '.join(sorted(dtypes))}."
        )


def check_vocabularies(model, tokenizer):
    """Raise a `ValueError` if the vocabularies of model and tokenizer differ in size."""
    sizes = (model.embedding.vocabulary_size, tokenizer.vocabulary_size)
    if sizes[0] != sizes[1]:
        raise ValueError(
            "`model` and `tokenizer` must have vocabularies of the same size. "
            f"Received: {sizes[0]} and {sizes[1]}."
        )
