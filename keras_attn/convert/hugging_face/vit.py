"""The Vision Transformer: its names on disk, and the model for them."""

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
from keras_attn.convert.hugging_face.text_classifier import label_options, read_num_classes
from keras_attn.convert.hugging_face.weights import Fold, copy, copy_blocks, copy_part

BLOCK = {
    "attention.query": "attention.attention.query",
    "attention.key": "attention.attention.key",
    "attention.value": "attention.attention.value",
    "attention.output": "attention.output.dense",
    "attention_residual.norm": "layernorm_before",
    "feed_forward.intermediate": "intermediate.dense",
    "feed_forward.output_dense": "output.dense",
    "feed_forward_residual.norm": "layernorm_after",
}
# The path in the model of each option of `config.json`.
OPTIONS = {**ENCODER_OPTIONS, "patch_size": "embedding.patch_size"}


def convert(checkpoint, overrides):
    """Return a `Classifier` with the weights of a checkpoint."""
    checkpoint.strip("vit.")
    num_classes = read_num_classes(checkpoint, "classifier")
    model = build(models.vit, arguments(checkpoint.config, num_classes), overrides)
    copy_weights(checkpoint, model)
    return model


def arguments(config, num_classes):
    """Return the arguments of `models.vit` for a configuration."""
    config.require(qkv_bias=True)
    size, channels = config.size("image_size", 224), config.size("num_channels", 3)
    return {
        "num_classes": num_classes,
        "image_shape": (size, size, channels),
        "patch_size": config.size("patch_size", 16),
        "num_layers": config.size("num_hidden_layers"),
        "num_heads": config.size("num_attention_heads"),
        "hidden_dim": config.size("hidden_size"),
        "intermediate_dim": config.size("intermediate_size"),
        "dropout": config.number("hidden_dropout_prob", 0.0),
        "activation": config.activation("hidden_act", "gelu"),
        "epsilon": config.number("layer_norm_eps", 1e-12),
    }


def copy_weights(checkpoint, model):
    """Copy the tensors of a model, in either direction."""
    _copy_embeddings(checkpoint, model)
    copy_part(checkpoint, model, "encoder.norm", "layernorm")
    copy_part(checkpoint, model, "head", "classifier")
    copy_blocks(checkpoint, model.encoder.blocks, BLOCK, "encoder.layer.{}.")


def _copy_embeddings(checkpoint, model):
    """Copy the kernel of the patches, stored (D, C, row, column), and the tables with batch 1."""
    patches, table = model.embedding, model.position.table
    width, size, channels = patches.hidden_dim, patches.patch_size, model.image_shape[-1]
    kernel = Fold([patches.kernel], (width, channels, size, size), axes=(2, 3, 1, 0))
    checkpoint.transfer("embeddings.patch_embeddings.projection.weight", kernel)
    copy(checkpoint, patches.bias, "embeddings.patch_embeddings.projection.bias")
    checkpoint.transfer("embeddings.cls_token", Fold([patches.token], (1, 1, width)))
    checkpoint.transfer("embeddings.position_embeddings", Fold([table], (1, *table.shape)))


def options(model):
    """Return the options of `config.json` for a model."""
    height, _, channels = model.image_shape
    return {
        **read_options(model, OPTIONS),
        "image_size": height,
        "num_channels": channels,
        "hidden_act": activation_name(read_part(model, f"{FIRST}.feed_forward.activation")),
        "architectures": ["ViTForImageClassification"],
        **label_options(read_part(model, "num_classes")),
    }


FAMILY = Family(
    convert=convert,
    options=options,
    build=lambda config, model: models.vit(**arguments(config, model.num_classes)),
    copy_weights=copy_weights,
    prefix="vit.",
    heads=("classifier",),
)
