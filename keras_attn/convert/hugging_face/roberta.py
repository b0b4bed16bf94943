"""RoBERTa: BERT with other ids, whose positions begin after that of padding."""

from keras_attn import models
from keras_attn.convert.hugging_face import bert
from keras_attn.convert.hugging_face.family import Family
from keras_attn.convert.hugging_face.overrides import build
from keras_attn.convert.hugging_face.text_classifier import copy_classifier, read_classifier
from keras_attn.convert.hugging_face.weights import LastRows, copy_blocks, copy_table

PARTS = {
    "embedding": "embeddings.word_embeddings",
    "segment": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
}
HEAD = {
    "head.dense": "lm_head.dense",
    "head.norm": "lm_head.layer_norm",
    "head.bias": "lm_head.bias",
}
# Names of the linear layers of a classifier, and of an encoder without one.
CLASSIFIER = "classifier.dense", "classifier.out_proj"
FEATURES = "pooler.dense", CLASSIFIER[1]


def convert(checkpoint, overrides):
    """Return a `MaskedLanguageModel` or a `Classifier` with the weights of a checkpoint.

    It counts positions of real tokens; in rows with padding at the end these are ours.
    """
    checkpoint.strip("roberta.")
    model = read_model(checkpoint, models.bert, arguments(checkpoint.config), overrides)
    copy_weights(checkpoint, model)
    return model


def arguments(config):
    """Return the arguments of `models.bert` for a configuration."""
    config.require(hidden_act="gelu")  # the head's, whatever the option says
    found = {**bert.arguments(config), "pad_id": config.index("pad_token_id", 1)}
    found["max_length"] -= first_position(config)
    return found


def first_position(config):
    """Return the row of the first position in the table, which is after that of padding."""
    return config.index("pad_token_id", 1) + 1


def read_model(checkpoint, function, given, overrides):
    """Return the model whose tensors a checkpoint has, without their numbers.

    Args:
        checkpoint: a `Checkpoint`, whose names have no prefix.
        function: builds the `MaskedLanguageModel`, by the arguments `given` and the `overrides`.
    """
    checkpoint.drop_copy("lm_head.decoder.weight", "embeddings.word_embeddings.weight")
    checkpoint.drop_copy("lm_head.decoder.bias", "lm_head.bias")
    model = build(function, given, overrides)
    first = first_position(checkpoint.config)
    checkpoint.repeat_positions(bert.POSITIONS, given["max_length"], overrides, first)
    if checkpoint.has("lm_head.bias"):
        checkpoint.ignore("pooler.*")
        return model
    is_classifier = checkpoint.has(f"{CLASSIFIER[1]}.weight")
    return read_classifier(checkpoint, model, *(CLASSIFIER if is_classifier else FEATURES))


def copy_weights(checkpoint, model, block=bert.BLOCK):
    """Copy the tensors of a model, in either direction; `block` is the table of a block."""
    copy_table(checkpoint, model, PARTS)
    copy_blocks(checkpoint, model.encoder.blocks, block, "encoder.layer.{}.")
    first = first_position(checkpoint.config)
    checkpoint.transfer(bert.POSITIONS, LastRows(model.position.table, first))
    if not isinstance(model, models.Classifier):
        copy_table(checkpoint, model, HEAD)
    elif model.num_classes is not None:
        copy_classifier(checkpoint, model, *CLASSIFIER)
    elif model.pooler is None:  # transformers has one even so
        bert.fill_pooler(checkpoint, model, FEATURES[0])
    else:
        copy_classifier(checkpoint, model, *FEATURES)


FAMILY = Family(convert)
