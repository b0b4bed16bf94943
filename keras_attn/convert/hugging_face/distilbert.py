"""DistilBERT: BERT without segments."""

import numpy as np

from keras_attn import models
from keras_attn.convert.hugging_face.bert import POSITIONS
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
from keras_attn.convert.hugging_face.weights import copy_blocks, copy_table, numbers
from keras_attn.ops.activations import get_activation

PARTS = {
    "embedding": "embeddings.word_embeddings",
    "norm": "embeddings.LayerNorm",
}
HEAD = {
    "head.dense": "vocab_transform",
    "head.norm": "vocab_layer_norm",
    "head.bias": "vocab_projector.bias",
}
BLOCK = {
    "attention.query": "attention.q_lin",
    "attention.key": "attention.k_lin",
    "attention.value": "attention.v_lin",
    "attention.output": "attention.out_lin",
    "attention_residual.norm": "sa_layer_norm",
    "feed_forward.intermediate": "ffn.lin1",
    "feed_forward.output_dense": "ffn.lin2",
    "feed_forward_residual.norm": "output_layer_norm",
}
POOLER, CLASSIFIER, POOLER_ACTIVATION = "pre_classifier", "classifier", "relu"
# The path in the model of each option of `config.json`.
OPTIONS = {
    "vocab_size": "embedding.vocabulary_size",
    "n_layers": "encoder.num_layers",
    "n_heads": f"{FIRST}.attention.num_heads",
    "dim": "embedding.hidden_dim",
    "hidden_dim": f"{FIRST}.feed_forward.intermediate_dim",
    "dropout": "dropout",
    "attention_dropout": f"{FIRST}.attention.dropout",
    "max_position_embeddings": "position.max_length",
}
EPSILON = 1e-12


def convert(checkpoint, overrides):
    """Return a `MaskedLanguageModel` or a `Classifier` with the weights of a checkpoint."""
    checkpoint.strip("distilbert.")
    checkpoint.drop_copy("vocab_projector.weight", "embeddings.word_embeddings.weight")
    given = arguments(checkpoint.config)
    model = build(models.bert, given, overrides)
    checkpoint.repeat_positions(POSITIONS, given["max_length"], overrides)
    if not checkpoint.has("vocab_projector.bias"):
        model = read_classifier(checkpoint, model, POOLER, CLASSIFIER, POOLER_ACTIVATION)
    copy_weights(checkpoint, model)
    return model


def arguments(config):
    """Return the arguments of `models.bert` for a configuration."""
    return {
        "vocabulary_size": config.size("vocab_size"),
        "num_layers": config.size("n_layers"),
        "num_heads": config.size("n_heads"),
        "hidden_dim": config.size("dim"),
        "intermediate_dim": config.size("hidden_dim"),
        "dropout": config.number("dropout", 0.1),
        "max_length": config.size("max_position_embeddings"),
        "num_segments": 1,
        "activation": config.activation("activation", "gelu"),
        "epsilon": EPSILON,
        "pad_id": config.index("pad_token_id", 0),
    }


def copy_weights(checkpoint, model):
    """Copy the tensors of a model, in either direction."""
    copy_table(checkpoint, model, PARTS)
    checkpoint.transfer(POSITIONS, _Positions(model))
    copy_blocks(checkpoint, model.encoder.blocks, BLOCK, "transformer.layer.{}.")
    if isinstance(model, models.Classifier):
        copy_classifier(checkpoint, model, POOLER, CLASSIFIER)
    else:
        copy_table(checkpoint, model, HEAD)


class _Positions:
    """The table of positions; the vector of the model's only segment is added when it is stored."""

    def __init__(self, model):
        self.table, self.segment = model.position.table, model.segment.table
        self.shape = tuple(self.table.shape)

    def assign(self, tensor):
        self.table.assign(tensor)
        self.segment.assign(np.zeros(self.segment.shape))

    def tensor(self):
        return numbers(self.table) + numbers(self.segment)


def fits(model):
    """Return True for an encoder with one segment and, if it has a pooler, DistilBERT's."""
    if read_part(model, "segment.num_segments") != 1 or model.norm.epsilon != EPSILON:
        return False
    pooler = getattr(model, "pooler", None)
    return pooler is None or pooler.activation is get_activation(POOLER_ACTIVATION)


def options(model):
    """Return the options of `config.json` for a model."""
    return {
        **read_options(model, OPTIONS),
        "activation": activation_name(read_part(model, f"{FIRST}.feed_forward.activation")),
        **head_options(model, "DistilBert"),
    }


def _build(config, model):
    return build_alike(models.bert(**arguments(config)), model, POOLER_ACTIVATION)


FAMILY = Family(
    convert=convert,
    options=options,
    build=_build,
    copy_weights=copy_weights,
    prefix="distilbert.",
    heads=("vocab_", POOLER, CLASSIFIER),
    files=pooling_files,
)
