"""Encoders of texts with a pooler and a classifier in place of the head for masked tokens."""

import pathlib

import keras

from keras_attn import models
from keras_attn.convert.hugging_face.tensor_files import read_json
from keras_attn.convert.hugging_face.weights import copy_part

# In folders of sentence encoders.
MODULES, POOLING = "modules.json", "1_Pooling/config.json"
# `Normalize` divides a vector by its norm, which leaves its direction.
_READ_MODULES = ("Transformer", "Pooling", "Normalize")
_POOLINGS = {"cls": "first", "mean": "mean"}
# Ends of the names of classes whose classifier may have the names of that of texts.
_OTHER_CLASSIFIERS = ("ForTokenClassification", "ForMultipleChoice")


def read_classifier(checkpoint, model, pooler, classifier, activation="tanh"):
    """Return the `Classifier` whose tensors a checkpoint has, of a masked language model's parts.

    Without a classifier in the checkpoint its outputs are features: those of the pooler, if there
    is one, at the first position; in a folder of a sentence encoder those of the last layer at the
    first position or their mean, without the pooler.

    Args:
        checkpoint: a `Checkpoint`.
        model: a `MaskedLanguageModel`.
        pooler, classifier: names of linear layers.
        activation: of the pooler.
    """
    has_pooler = checkpoint.has(f"{pooler}.weight")
    has_classifier = checkpoint.has(f"{classifier}.weight")
    _refuse_tokens(checkpoint, is_of_texts=has_pooler and has_classifier)
    if has_classifier:
        num_classes = read_num_classes(checkpoint, classifier)
        return build_classifier(model, num_classes, "first", activation)
    pooling = _read_pooling(checkpoint.config)
    if pooling is not None:
        checkpoint.ignore(f"{pooler}.*")
        return build_classifier(model, None, pooling, None)
    return build_classifier(model, None, "first", activation if has_pooler else None)


def read_num_classes(checkpoint, name):
    """Return the number of classes of the linear layer `name`; refuse several labels of an input.

    Their probabilities are sigmoids of the logits, those of a `Classifier` a softmax.
    """
    if checkpoint.config.get("problem_type") == "multi_label_classification":
        checkpoint.refuse(
            "A classifier with the problem_type 'multi_label_classification' is not converted, "
            "only one that gives an input one class."
        )
    return checkpoint.shape(f"{name}.weight")[0]


def _refuse_tokens(checkpoint, is_of_texts):
    """Refuse a classifier of tokens or choices.

    Args:
        checkpoint: a `Checkpoint`.
        is_of_texts: bool. True if it has both layers of the family's classifier of texts.
    """
    classes = checkpoint.config.get("architectures", [])
    is_other = any(str(name).endswith(_OTHER_CLASSIFIERS) for name in classes)
    if checkpoint.has("classifier.weight") and (is_other or not is_of_texts):
        checkpoint.refuse(
            "A model that classifies tokens or choices is not converted, only one that classifies "
            "texts."
        )


def build_classifier(model, num_classes, pooling, activation):
    """Return a `Classifier` of the parts of a masked language model.

    Args:
        model: a `MaskedLanguageModel`.
        num_classes, pooling: as `Classifier`.
        activation: of the pooler; None for no pooler.
    """
    pooler = None
    if activation is not None:
        pooler = keras.layers.Dense(model.embedding.hidden_dim, activation, name="pooler")
    return models.Classifier(
        embedding=model.embedding,
        encoder=model.encoder,
        num_classes=num_classes,
        position=model.position,
        pooling=pooling,
        dropout=model.dropout,
        segment=model.segment,
        norm=model.norm,
        pooler=pooler,
        name=model.name,
    )


def copy_classifier(checkpoint, model, pooler, classifier):
    """Copy the tensors of the pooler and of the classifier, by the names of the linear layers."""
    for part, name in (("pooler", pooler), ("head", classifier)):
        if getattr(model, part) is not None:
            copy_part(checkpoint, model, part, name)


def build_alike(masked, model, activation):
    """Return a model of a family's parts with the head that `model` has.

    Args:
        masked: a `MaskedLanguageModel` of the family.
        model: a `MaskedLanguageModel` or a `Classifier`.
        activation: of the family's pooler.
    """
    if not isinstance(model, models.Classifier):
        return masked
    if model.num_classes is None and model.pooler is None:
        return build_classifier(masked, None, model.pooling, None)
    return build_classifier(masked, model.num_classes, "first", activation)


def head_options(model, name):
    """Return the options that say which head a model has; `name` is that of a family's classes."""
    if not isinstance(model, models.Classifier):
        return {"architectures": [f"{name}ForMaskedLM"]}
    if model.num_classes is None:
        return {"architectures": [f"{name}Model"]}
    return {
        "architectures": [f"{name}ForSequenceClassification"],
        **label_options(model.num_classes),
    }


def label_options(num_classes):
    """Return the options for the number of classes, which are names of the classes."""
    names = [f"LABEL_{index}" for index in range(num_classes)]
    return {
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
    }


def pooling_files(model):
    """Return the files that name the pooling of a sentence encoder, by their names."""
    if getattr(model, "num_classes", 0) is not None or model.pooler is not None:
        return {}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (path, name) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling")])
    ]
    # As versions before 5.4 write it, with the false flag: without it they take the mean as well.
    flags = {
        "pooling_mode_cls_token": model.pooling == "first",
        "pooling_mode_mean_tokens": model.pooling == "mean",
    }
    width = model.embedding.hidden_dim
    return {MODULES: modules, POOLING: {"word_embedding_dimension": width, **flags}}


def _read_pooling(config):
    """Return the pooling of a sentence encoder; None for another encoder."""
    if config.folder is None:
        return None
    if pathlib.Path(config.folder, MODULES).is_file():
        for module in read_json(config.folder, MODULES, list):
            kind = module.get("type") if isinstance(module, dict) else None
            name = str(kind).rpartition(".")[2]
            if name not in _READ_MODULES:
                config.refuse(
                    f"The module {name!r} of {MODULES} is not converted, only "
                    f"{', '.join(_READ_MODULES)}."
                )
    if not pathlib.Path(config.folder, POOLING).is_file():
        return None
    modes = _pooling_modes(read_json(config.folder, POOLING))
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        config.refuse(f"The pooling {modes!r} of {POOLING} is not converted.")
    return _POOLINGS[modes[0]]


def _pooling_modes(options):
    """Return the names of the poolings: in one option from version 5.4 on, before in flags."""
    modes = options.get("pooling_mode")
    if modes is None:
        flags = [name for name, on in options.items() if on and name.startswith("pooling_mode_")]
        return [flag.removeprefix("pooling_mode_").partition("_token")[0] for flag in flags]
    return [modes] if isinstance(modes, str) else list(modes)
