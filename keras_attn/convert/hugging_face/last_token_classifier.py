"""Causal decoders that classify a text by its last token, without a head of a language model."""

import dataclasses

from keras_attn import models
from keras_attn.convert.hugging_face.text_classifier import label_options, read_num_classes
from keras_attn.convert.hugging_face.weights import copy_part
from keras_attn.ops.checks import check_that

HEAD = "score"
_ARCHITECTURE = "ForSequenceClassification"


def with_classifier(family, name, pad_id=None):
    """Return the `Family` of language models whose checkpoints may have classes.

    The parts of a `Classifier` are those of a `CausalLanguageModel`, which the family's functions
    read and write.

    Args:
        family: a `Family` of causal language models.
        name: str. Beginning of the name of the class of transformers.
        pad_id: the id of padding where `config.json` has none; None for none.
    """

    def convert(checkpoint, overrides):
        checkpoint.strip(family.prefix)
        if not checkpoint.has(f"{HEAD}.weight"):
            _check_no_classes(checkpoint)
            return family.convert(checkpoint, overrides)
        num_classes = read_num_classes(checkpoint, HEAD)
        found = {"pad_id": _read_pad_id(checkpoint.config, pad_id), **overrides}
        model = _classifier(family.convert(checkpoint, found), num_classes)
        copy_part(checkpoint, model, "head", HEAD)
        return model

    def options(model):
        if not isinstance(model, models.Classifier):
            return family.options(model)
        check_that(model.num_classes is not None, "a number to be written", num_classes=None)
        found = family.options(language_model(model))
        found.pop("tie_word_embeddings", None)  # there is no second table
        architecture = {"architectures": [f"{name}{_ARCHITECTURE}"]}
        return {**found, **architecture, **label_options(model.num_classes)}

    def build(config, model):
        found = family.build(config, language_model(model))
        is_classifier = isinstance(model, models.Classifier)
        return _classifier(found, model.num_classes) if is_classifier else found

    def copy_weights(checkpoint, model):
        family.copy_weights(checkpoint, language_model(model))
        if isinstance(model, models.Classifier):
            copy_part(checkpoint, model, "head", HEAD)

    functions = {"convert": convert, "options": options, "build": build}
    heads = (*family.heads, HEAD)
    return dataclasses.replace(family, **functions, copy_weights=copy_weights, heads=heads)


def language_model(model):
    """Return the `CausalLanguageModel` of the parts of a `Classifier`; another model as it is."""
    if not isinstance(model, models.Classifier):
        return model
    return models.CausalLanguageModel(
        embedding=model.embedding,
        depth=model.encoder,
        position=model.position,
        dropout=model.dropout,
        name=model.name,
    )


def _classifier(model, num_classes):
    return models.Classifier(
        embedding=model.embedding,
        encoder=model.depth,
        num_classes=num_classes,
        position=model.position,
        pooling="last",
        dropout=model.dropout,
        use_bias=False,
        name=model.name,
    )


def _check_no_classes(checkpoint):
    """Refuse a folder of a classifier: it would be read as a language model."""
    names = checkpoint.config.get("architectures", [])
    if any(name.endswith(_ARCHITECTURE) for name in names):
        checkpoint.shape(f"{HEAD}.weight")


def _read_pad_id(config, default):
    """Return the id of padding: null in the file stands for none, an absent key for the default."""
    if config.values.get("pad_token_id", default) is None:
        return None
    return config.index("pad_token_id", default)
