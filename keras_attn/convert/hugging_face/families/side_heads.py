"""Classes and answers of encoder-decoders, whose sides both read the text."""

import keras

from keras_attn import layers, models, registry
from keras_attn.compat.unallocated import without_values
from keras_attn.convert.hugging_face.heads import (
    ANSWERS,
    CLASSES,
    head_of,
    head_options,
    with_head,
)
from keras_attn.convert.hugging_face.weights import copy_table

SIDE_HEADS = {
    CLASSES: {"pooler": "classification_head.dense", "head": "classification_head.out_proj"},
    ANSWERS: {"head": "qa_outputs"},
}
SIDE_HEAD_PREFIXES = ("classification_head.", "qa_outputs.")
_PARTS = ("embedding", "encoder", "decoder", "position", "source_position", "norm")


def reads_by_both(model):
    """Return True for a model whose encoder is that of an encoder-decoder, and its decoder."""
    return isinstance(getattr(model, "encoder", None), models.EncoderThenDecoder)


def has_both_sides(model):
    """Return True for an encoder-decoder, or a model of the sides of one."""
    return isinstance(model, models.EncoderDecoder) or reads_by_both(model)


def sides_of(model):
    """Return the part of a model that has both sides."""
    return model.encoder if reads_by_both(model) else model


def with_side_head(sides, head, start_id, end_id=None, size=None, multi_label=False):
    """Return a model of the sides of an `EncoderDecoder`, with another head.

    Its layers are new ones without values: those of the sides have the names of their place there.

    Args:
        sides: an `EncoderDecoder` with one table of tokens.
        head: CLASSES or ANSWERS.
        start_id: int. The token before those that the decoder reads; None for the last of a text.
        end_id: int. The token at whose last place classes are read.
        size: int. Number of classes.
        multi_label: as `Classifier`.
    """
    with without_values():
        parts = {name: getattr(sides, name) for name in _PARTS}
        parts = {name: None if x is None else registry.copy(x) for name, x in parts.items()}
        both = models.EncoderThenDecoder(**parts, dropout=sides.dropout, start_id=start_id)
        masked = models.MaskedLanguageModel(None, None, None, None, both, None, name=sides.name)
        if head == ANSWERS:
            return with_head(masked, ANSWERS)
        pooling = layers.Pool("last", token_id=end_id)
        pooler = keras.layers.Dense(both.embedding.hidden_dim, "tanh", name="pooler")
        return with_head(masked, CLASSES, size, pooling, pooler, multi_label)


def copy_side_head(checkpoint, model):
    """Copy the tensors of classes or answers, in either direction."""
    copy_table(checkpoint, model, SIDE_HEADS[head_of(model)])


def side_head_options(model, name):
    """Return the options of classes or answers; `name` is that of a family's classes."""
    head = head_of(model)
    if head not in SIDE_HEADS:
        raise ValueError(
            f"`model` fits no family of checkpoints: a {name} with a decoder has no class with "
            f"{head}. Received: model={model!r}."
        )
    options = head_options(model, name)
    if head == CLASSES:  # another pooling is refused by the comparison with the family's
        options["eos_token_id"] = getattr(model.pooling, "token_id", None)
    if model.encoder.start_id is not None:
        options["decoder_start_token_id"] = model.encoder.start_id
    return options
