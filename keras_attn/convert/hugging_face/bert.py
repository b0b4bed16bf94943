"""BERT: its names on disk, and the model for them."""

from keras_attn import models
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.family import (
    ENCODER_OPTIONS,
    FIRST,
    Family,
    read_options,
    read_part,
)
from keras_attn.convert.hugging_face.overrides import build
from keras_attn.convert.hugging_face.text_classifier import (
    build_alike,
    copy_classifier,
    head_options,
    pooling_files,
    read_classifier,
)
from keras_attn.convert.hugging_face.weights import copy_blocks, copy_table

POSITIONS = "embeddings.position_embeddings.weight"
EMBEDDINGS = {
    "embedding": "word_embeddings",
    "position": "position_embeddings",
    "segment": "token_type_embeddings",
    "norm": "LayerNorm",
}
BLOCK = {
    "attention.query": "attention.self.query",
    "attention.key": "attention.self.key",
    "attention.value": "attention.self.value",
    "attention.output": "attention.output.dense",
    "attention_residual.norm": "attention.output.LayerNorm",
    "feed_forward.intermediate": "intermediate.dense",
    "feed_forward.output_dense": "output.dense",
    "feed_forward_residual.norm": "output.LayerNorm",
}
HEAD = {
    "head.dense": "transform.dense",
    "head.norm": "transform.LayerNorm",
    "head.bias": "bias",
}
POOLER, CLASSIFIER = "pooler.dense", "classifier"
# The path in the model of each option of `config.json`.
OPTIONS = {
    **ENCODER_OPTIONS,
    "vocab_size": "embedding.vocabulary_size",
    "max_position_embeddings": "position.max_length",
    "type_vocab_size": "segment.num_segments",
}


def convert(checkpoint, overrides):
    """Return a `MaskedLanguageModel` or a `Classifier` with the weights of a checkpoint."""
    checkpoint.strip("bert.")
    checkpoint.drop_copy("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight")
    checkpoint.drop_copy("cls.predictions.decoder.bias", "cls.predictions.bias")
    given = arguments(checkpoint.config)
    model = build(models.bert, given, overrides)
    checkpoint.repeat_positions(POSITIONS, given["max_length"], overrides)
    if checkpoint.has("cls.predictions.bias"):
        checkpoint.ignore("cls.seq_relationship.*", "pooler.*")  # for next sentence prediction
    else:
        model = read_classifier(checkpoint, model, POOLER, CLASSIFIER)
    copy_weights(checkpoint, model)
    return model


def arguments(config):
    """Return the arguments of `models.bert` for a configuration."""
    config.require(position_embedding_type="absolute")
    return {
        "vocabulary_size": config.size("vocab_size"),
        "num_layers": config.size("num_hidden_layers"),
        "num_heads": config.size("num_attention_heads"),
        "hidden_dim": config.size("hidden_size"),
        "intermediate_dim": config.size("intermediate_size"),
        "dropout": config.number("hidden_dropout_prob", 0.1),
        "max_length": config.size("max_position_embeddings"),
        "num_segments": config.size("type_vocab_size", 2),
        "activation": config.activation("hidden_act", "gelu"),
        "epsilon": config.number("layer_norm_eps", 1e-12),
        "pad_id": config.index("pad_token_id", 0),
    }


def copy_weights(checkpoint, model):
    """Copy the tensors of a model, in either direction."""
    copy_table(checkpoint, model, EMBEDDINGS, "embeddings.")
    copy_blocks(checkpoint, model.encoder.blocks, BLOCK, "encoder.layer.{}.")
    if not isinstance(model, models.Classifier):
        copy_table(checkpoint, model, HEAD, "cls.predictions.")
    elif model.pooler is None:  # transformers has one even so
        fill_pooler(checkpoint, model, POOLER)
    else:
        copy_classifier(checkpoint, model, POOLER, CLASSIFIER)


def fill_pooler(checkpoint, model, name):
    """Leave out a pooler that nothing of ours reads, or store zeros for it."""
    width = model.embedding.hidden_dim
    checkpoint.store_zeros(f"{name}.weight", (width, width))
    checkpoint.store_zeros(f"{name}.bias", (width,))


def options(model):
    """Return the options of `config.json` for a model."""
    return {
        **read_options(model, OPTIONS),
        "hidden_act": activation_name(read_part(model, f"{FIRST}.feed_forward.activation")),
        **head_options(model, "Bert"),
    }


FAMILY = Family(
    convert=convert,
    options=options,
    build=lambda config, model: build_alike(models.bert(**arguments(config)), model, "tanh"),
    copy_weights=copy_weights,
    prefix="bert.",
    heads=("cls.", CLASSIFIER),
    files=pooling_files,
)
