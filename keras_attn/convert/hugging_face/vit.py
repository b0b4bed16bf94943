"""The Vision Transformer: its names on disk, and the model for them."""

from keras_attn import models
from keras_attn.convert.hugging_face.overrides import build
from keras_attn.convert.hugging_face.weights import copy, copy_blocks, copy_part

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


def convert(checkpoint, overrides):
    """Return a `Classifier` with the weights of a checkpoint."""
    config = checkpoint.config
    config.require(qkv_bias=True)
    checkpoint.strip("vit.")
    size, channels = config.size("image_size", 224), config.size("num_channels", 3)
    arguments = {
        "num_classes": checkpoint.shape("classifier.weight")[0],
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
    model = build(models.vit, arguments, overrides)
    _copy_embeddings(checkpoint, model, arguments["patch_size"], channels)
    copy_part(checkpoint, model, "encoder.norm", "layernorm")
    copy_part(checkpoint, model, "head", "classifier")
    copy_blocks(checkpoint, model.encoder.blocks, BLOCK, "encoder.layer.{}.")
    return model


def _copy_embeddings(checkpoint, model, size, channels):
    """Copy the kernel of the patches, stored (D, C, row, column), and the tables with batch 1."""
    patches, table = model.embedding, model.position.table
    width = patches.hidden_dim
    kernel = checkpoint.take(
        "embeddings.patch_embeddings.projection.weight", (width, channels, size, size)
    )
    patches.kernel.assign(kernel.transpose(2, 3, 1, 0).reshape(-1, width))
    copy(checkpoint, patches.bias, "embeddings.patch_embeddings.projection.bias")
    patches.token.assign(checkpoint.take("embeddings.cls_token", (1, 1, width))[0, 0])
    table.assign(checkpoint.take("embeddings.position_embeddings", (1, *table.shape))[0])
