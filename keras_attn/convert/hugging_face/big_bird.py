"""BigBird: BERT with other names of the heads, where its attention is full."""

from keras_attn import models
from keras_attn.convert.hugging_face import bert
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.family import FIRST, Family, read_options, read_part
from keras_attn.convert.hugging_face.overrides import build
from keras_attn.convert.hugging_face.text_classifier import (
    build_alike,
    copy_classifier,
    head_options,
    pooling_files,
    read_classifier,
)
from keras_attn.convert.hugging_face.weights import copy_blocks, copy_table
from keras_attn.ops.activations import get_activation

POOLER = "pooler"
# Names of the linear layers of a classifier, and of an encoder without one.
CLASSIFIER = "classifier.dense", "classifier.out_proj"
FEATURES = POOLER, CLASSIFIER[1]


def convert(checkpoint, overrides):
    """Return a `MaskedLanguageModel` or a `Classifier` with the weights of a checkpoint.

    It has as many positions as transformers computes by full attention.
    """
    checkpoint.strip("bert.")
    checkpoint.drop_copy("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight")
    checkpoint.drop_copy("cls.predictions.decoder.bias", "cls.predictions.bias")
    config = checkpoint.config
    given = arguments(config)
    model = build(models.bert, given, overrides)
    trained, wanted = config.size("max_position_embeddings"), model.position.max_length
    checkpoint.repeat_positions(bert.POSITIONS, trained, {"max_length": wanted})
    if checkpoint.has("cls.predictions.bias"):
        checkpoint.ignore("cls.seq_relationship.*")  # of the pretraining's other task
    elif checkpoint.has(f"{CLASSIFIER[1]}.weight"):
        model = read_classifier(checkpoint, model, *CLASSIFIER, given["activation"])
    else:
        model = read_classifier(checkpoint, model, *FEATURES)
    copy_weights(checkpoint, model)
    return model


def arguments(config):
    """Return the arguments of `models.bert` for a configuration."""
    config.require(use_bias=True)
    return {
        **bert.arguments(config),
        "activation": config.activation("hidden_act", "gelu_new"),
        "max_length": min(config.size("max_position_embeddings"), full_length(config)),
        "scaled": config.flag("rescale_embeddings"),
    }


def full_length(config):
    """Return the number of tokens up to which transformers computes full attention."""
    kind = config.get("attention_type", "block_sparse")
    if kind == "original_full":
        return config.size("max_position_embeddings")
    config.require(attention_type="block_sparse")
    blocks = 5 + 2 * config.size("num_random_blocks", 3)
    return blocks * config.size("block_size", 64)


def copy_weights(checkpoint, model):
    """Copy the tensors of a model, in either direction."""
    copy_table(checkpoint, model, bert.EMBEDDINGS, "embeddings.")
    copy_blocks(checkpoint, model.encoder.blocks, bert.BLOCK, "encoder.layer.{}.")
    is_classifier = isinstance(model, models.Classifier)
    if is_classifier and model.num_classes is None and model.pooler is not None:
        copy_classifier(checkpoint, model, *FEATURES)
        return
    bert.fill_pooler(checkpoint, model, POOLER)  # which every class has, and few read
    if not is_classifier:
        copy_table(checkpoint, model, bert.HEAD, "cls.predictions.")
    elif model.num_classes is not None:
        copy_classifier(checkpoint, model, *CLASSIFIER)


def fits(model):
    """Return True for an encoder that is no BERT by its embeddings or by its classifier."""
    if getattr(model.embedding, "scaled", False):
        return True
    pooler = getattr(model, "pooler", None)
    return pooler is not None and pooler.activation is not get_activation("tanh")


def options(model):
    """Return the options of `config.json` for a model."""
    activation = read_part(model, f"{FIRST}.feed_forward.activation")
    return {
        **read_options(model, bert.OPTIONS),
        "hidden_act": activation_name(activation, tanh="gelu_new"),
        "attention_type": "original_full",
        "rescale_embeddings": model.embedding.scaled,
        **head_options(model, "BigBird"),
    }


def _build(config, model):
    given = arguments(config)
    pooler = "tanh" if getattr(model, "num_classes", None) is None else given["activation"]
    return build_alike(models.bert(**given), model, pooler)


FAMILY = Family(
    convert=convert,
    options=options,
    build=_build,
    copy_weights=copy_weights,
    prefix="bert.",
    heads=("cls.", "classifier"),
    files=pooling_files,
)
