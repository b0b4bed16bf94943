"""Encoders of images: ViT."""

import keras

from keras_attn import models
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.families.family import (
    ENCODER_OPTIONS,
    FIRST,
    Family,
    build,
    read_options,
    read_part,
    read_sizes,
)
from keras_attn.convert.hugging_face.heads import (
    CLASSES,
    FEATURES,
    has_several_labels,
    head_of,
    head_options,
    read_head,
    with_head,
)
from keras_attn.convert.hugging_face.weights import Fold, copy, copy_blocks, copy_part, copy_table


class ViT(Family):
    """The Vision Transformer."""

    model_classes = (models.Classifier,)
    prefix = "vit."
    head_names = {CLASSES: {"head": "classifier"}, FEATURES: {"pooler": "pooler.dense"}}
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
        """Return a `Classifier` with the weights of a checkpoint, or one without classes."""
        checkpoint.strip("vit.")
        config, num_classes = checkpoint.config, None
        head = read_head(checkpoint, "ViT", self.head_names, FEATURES)
        if head == CLASSES:
            num_classes = checkpoint.shape("classifier.weight")[0]
        vit = build(models.vit, self.arguments(config, num_classes), overrides)
        has_pooler = head == FEATURES and checkpoint.has("pooler.dense.weight")
        pooler = self.build_pooler(config) if has_pooler else None
        multi_label = has_several_labels(config, head)
        model = with_head(vit, head, num_classes, vit.pooling, pooler, multi_label)
        self.copy_weights(checkpoint, model)
        return model

    def build_pooler(self, config):
        """Return the layer between the first position and the features."""
        width = config.size("pooler_output_size", config.size("hidden_size"))
        return keras.layers.Dense(width, config.activation("pooler_act", "tanh"), name="pooler")

    def arguments(self, config, num_classes):
        """Return the arguments of `models.vit` for a configuration."""
        config.require(qkv_bias=True)
        size, channels = config.size("image_size", 224), config.size("num_channels", 3)
        return {
            "num_classes": num_classes,
            "image_shape": (size, size, channels),
            "patch_size": config.size("patch_size", 16),
            **read_sizes(config),
            "dropout": config.number("hidden_dropout_prob", 0.0),
            "activation": config.activation("hidden_act", "gelu"),
            "epsilon": config.number("layer_norm_eps", 1e-12),
        }

    def copy_weights(self, checkpoint, model):
        self._copy_embeddings(checkpoint, model)
        copy_part(checkpoint, model, "encoder.norm", "layernorm")
        if model.pooler is not None or model.num_classes is not None:
            copy_table(checkpoint, model, self.head_names[head_of(model)])
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

    def fits(self, model):
        return model.image_shape is not None

    def options(self, model):
        height, _, channels = model.image_shape
        options = {
            **read_options(model, self.paths),
            "image_size": height,
            "num_channels": channels,
            "hidden_act": activation_name(read_part(model, f"{FIRST}.feed_forward.activation")),
            **head_options(model, "ViT"),
        }
        if model.num_classes is not None:
            return {**options, "architectures": ["ViTForImageClassification"]}
        if model.pooler is not None:
            names = {"pooler_output_size": "pooler.units", "pooler_act": "pooler.activation"}
            options |= read_options(model, names)
            options["pooler_act"] = activation_name(options["pooler_act"])
        return options

    def build(self, config, model):
        vit = models.vit(**self.arguments(config, model.num_classes))
        pooler = None if model.pooler is None else self.build_pooler(config)
        size, multi_label = model.num_classes, model.multi_label
        return with_head(vit, head_of(model), size, "first", pooler, multi_label)
