"""Checks of models, tokenizers and lengths that the formats share."""

from keras_attn.generation.decoding import check_model
from keras_attn.models.model import Model
from keras_attn.ops.checks import check_sizes


def has_memory(model):
    """Return True if the model reads a text segment by segment."""
    return isinstance(model, Model) and model.memory is not None


def check_lengths(model, max_length, **read_lengths):
    """Check the number of tokens to generate, and the greatest numbers of tokens to read.

    Returns:
        The model's number of positions; None if it has no limit.

    Raises:
        ValueError: if the model cannot generate, a length is below 1, or the model has too few
            positions for `max_length`.
    """
    check_model(model)
    check_sizes(max_length=max_length, **read_lengths)
    if model.max_length is not None and max_length > model.max_length:
        raise ValueError(
            f"`max_length` must be at most {model.max_length}, the number of the model's "
            f"positions. Received: max_length={max_length}."
        )
    return model.max_length


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
