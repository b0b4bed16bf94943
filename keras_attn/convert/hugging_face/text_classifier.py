"""Encoders of texts with a pooler and a classifier in place of the head for masked tokens."""

import pathlib

import keras

from keras_attn import models
from keras_attn.convert.hugging_face.tensor_files import read_json
from keras_attn.convert.hugging_face.weights import copy_part

# In folders of sentence encoders.
POOLING = "1_Pooling/config.json"


def convert_classifier(checkpoint, model, pooler, classifier, activation="tanh"):
    """Return a `Classifier` of the parts of a masked language model, which has its weights.

    Without a classifier in the checkpoint its outputs are features: those of the pooler, if there
    is one, at the first position; in a folder of a sentence encoder the mean of all positions.

    Args:
        checkpoint: whose other tensors are taken.
        model: a `MaskedLanguageModel`.
        pooler, classifier: names of linear layers.
        activation: of the pooler.
    """
    num_classes = None
    if checkpoint.has(f"{classifier}.weight"):
        num_classes = checkpoint.shape(f"{classifier}.weight")[0]
    pooling = _read_pooling(checkpoint.config) if num_classes is None else "first"
    if pooling == "mean":
        checkpoint.ignore(f"{pooler}.*")
    dense = None
    if num_classes is not None or checkpoint.has(f"{pooler}.weight"):
        dense = keras.layers.Dense(model.embedding.hidden_dim, activation, name="pooler")
    found = models.Classifier(
        embedding=model.embedding,
        encoder=model.encoder,
        num_classes=num_classes,
        position=model.position,
        pooling=pooling,
        dropout=model.dropout,
        segment=model.segment,
        norm=model.norm,
        pooler=dense,
        name=model.name,
    )
    for part, name in (("pooler", pooler), ("head", classifier)):
        if getattr(found, part) is not None:
            copy_part(checkpoint, found, part, name)
    return found


def _read_pooling(config):
    if not pathlib.Path(config.folder, POOLING).is_file():
        return "first"
    options = read_json(config.folder, POOLING)
    modes = [name for name, value in options.items() if name.startswith("pooling_mode") and value]
    kinds = {"pooling_mode_cls_token": "first", "pooling_mode_mean_tokens": "mean"}
    if len(modes) != 1 or modes[0] not in kinds:
        config.refuse(f"The pooling {modes!r} of {POOLING} is not converted.")
    return kinds[modes[0]]
