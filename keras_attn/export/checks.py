"""Checks of models, tokenizers and lengths that the formats share."""

from collections.abc import Collection, Mapping, Set

import keras

from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.generation.decoding import check_model
from keras_attn.generation.tokens import check_is_tokenizer, embeddings_and_tokenizers
from keras_attn.models.model import Model
from keras_attn.ops.checks import check_sizes, check_that
from keras_attn.registry import Configurable


def check_backend():
    """Raise a `ValueError` unless TensorFlow, whose graphs an export holds, is the backend."""
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise ValueError(
            "This export is made by the TensorFlow backend: save the model, and load it with "
            f"KERAS_BACKEND=tensorflow. Received: backend={backend!r}."
        )


def has_memory(model):
    """Return True if the model reads a text segment by segment."""
    return isinstance(model, Model) and model.memory is not None


def check_lengths(model, max_length, **read_lengths):
    """Check the numbers of tokens to generate and to read; return the model's number of positions.

    It is None for a model without a limit.
    """
    check_model(model)
    check_sizes(max_length=max_length, **read_lengths)
    limit = model.max_length
    wanted = f"at most {limit}, the number of the model's positions"
    check_that(limit is None or max_length <= limit, wanted, max_length=max_length)
    return limit


def check_padding(model):
    """Return the id of padding of a model with a memory; raise a `ValueError` if it has none."""
    wanted = "an id, by which a memory leaves out the ends of shorter rows"
    check_that(model.pad_id is not None, wanted, pad_id=None)
    return model.pad_id


def check_float32(model):
    """Raise a `ValueError` if a layer of the model computes in another dtype than float32."""
    check_that(hasattr(model, "layers"), "a `keras.Model`", model=model)
    dtypes = {layer.compute_dtype for layer in model.layers} - {"float32"}
    if dtypes:
        raise ValueError(
            "`model` must compute in float32: load it under that policy. "
            f"Received: {', '.join(sorted(dtypes))}."
        )


def length_beyond_windows(model, least=40, most=1027):
    """Return a number of positions that is more than twice each window of the model's patterns.

    It is more than twice every size in their configurations: windows, blocks, strides and others;
    but no more than a pattern of a limited length takes.
    """
    patterns = [getattr(layer, "pattern", None) for layer in flatten_layers(model)]
    length = min(max(least, 2 * _largest_size(patterns) + 3), most)
    while length > 1 and not all(_takes(pattern, length) for pattern in patterns):
        length -= 1
    return length


def _takes(pattern, length):
    """Return True if a pattern, or each of several, takes rows of so many positions."""
    try:
        for each in pattern if isinstance(pattern, (list, tuple)) else [pattern]:
            if hasattr(each, "check"):
                each.check(length=length)
    except ValueError:
        return False
    return True


def _largest_size(value):
    """Return the largest integer in the configuration of a pattern, or of several."""
    if isinstance(value, int):
        return value
    if isinstance(value, Configurable):
        value = {name: x for name, x in value.get_config().items() if name != "seed"}
    inside = value.values() if isinstance(value, dict) else value
    is_nested = isinstance(value, (list, tuple, dict))
    return max((_largest_size(x) for x in inside), default=0) if is_nested else 0


def check_end(tokenizer):
    """Raise a `ValueError` if the tokenizer has no end token, at which its texts end."""
    check_is_tokenizer(tokenizer)
    has_end = getattr(tokenizer, "eos_id", None) is not None
    check_that(has_end, "one with an end token, `eos_id`", tokenizer=tokenizer)


def check_reads(model, tokenizer):
    """Raise a `ValueError` if the model reads no ids, or lacks ids that the tokenizer has.

    It may have more: that of a mask, or rows that make the size of its table even.
    """
    for embedding, texts in embeddings_and_tokenizers(model, tokenizer):
        known = getattr(embedding, "vocabulary_size", 0)
        wanted = f"one of at most {known} ids, those of the model's embedding"
        check_that(texts.vocabulary_size <= known, wanted, tokenizer=texts)


def check_labels(labels, num_classes):
    """Raise a `ValueError` unless there is one string for each class, in an order."""
    has_order = isinstance(labels, Collection) and not isinstance(labels, (str, Set, Mapping))
    is_text = has_order and all(isinstance(label, str) for label in labels)
    wanted = f"a list of {num_classes} strings, one for each class"
    check_that(is_text and len(labels) == num_classes, wanted, labels=labels)
