"""Encoders of images: ViT."""

from keras_attn import models
from keras_attn.convert.hugging_face.classifiers import class_options
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.family import (
    ENCODER_OPTIONS,
    FIRST,
    Family,
    build,
    read_options,
    read_part,
)
from keras_attn.convert.hugging_face.weights import Fold, copy, copy_blocks, copy_part


class ViT(Family):
    """The Vision Transformer."""

    prefix = "vit."
    heads = ("classifier",)
    block = {
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
    paths = {**ENCODER_OPTIONS, "patch_size": "embedding.patch_size"}

    def convert(self, checkpoint, overrides):
        """Return a `Classifier` with the weights of a checkpoint."""
        checkpoint.strip("vit.")
        num_classes = checkpoint.shape("classifier.weight")[0]
        model = build(models.vit, self.arguments(checkpoint.config, num_classes), overrides)
        self.copy_weights(checkpoint, model)
        return model

    def arguments(self, config, num_classes):
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

    def copy_weights(self, checkpoint, model):
        self._copy_embeddings(checkpoint, model)
        copy_part(checkpoint, model, "encoder.norm", "layernorm")
        copy_part(checkpoint, model, "head", "classifier")
        copy_blocks(checkpoint, model.encoder.blocks, self.block, "encoder.layer.{}.")

    def _copy_embeddings(self, checkpoint, model):
        """Copy the patches' kernel, stored (D, C, row, column), and the tables with batch 1."""
        patches, table = model.embedding, model.position.table
        width, size, channels = patches.hidden_dim, patches.patch_size, model.image_shape[-1]
        kernel = Fold([patches.kernel], (width, channels, size, size), axes=(2, 3, 1, 0))
        checkpoint.transfer("embeddings.patch_embeddings.projection.weight", kernel)
        copy(checkpoint, patches.bias, "embeddings.patch_embeddings.projection.bias")
        checkpoint.transfer("embeddings.cls_token", Fold([patches.token], (1, 1, width)))
        checkpoint.transfer("embeddings.position_embeddings", Fold([table], (1, *table.shape)))

    def options(self, model):
        height, _, channels = model.image_shape
        return {
            **read_options(model, self.paths),
            "image_size": height,
            "num_channels": channels,
            "hidden_act": activation_name(read_part(model, f"{FIRST}.feed_forward.activation")),
            "architectures": ["ViTForImageClassification"],
            **class_options(model),
        }

    def build(self, config, model):
        return models.vit(**self.arguments(config, model.num_classes))
