"""Encoders of images."""

from . import Family

FAMILIES = {
    "vit": Family(
        classes=("ViTForImageClassification", "ViTModel"),
        sizes=(
            {
                **{"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2},
                **{"intermediate_size": 29, "image_size": 12, "patch_size": 4},
            },
            {
                **{"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4},
                **{"intermediate_size": 24, "image_size": 10, "patch_size": 5},
            },
            {
                **{"hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 6},
                **{"intermediate_size": 89, "image_size": 14, "patch_size": 2},
            },
        ),
        options={
            "num_channels": (3, 1),
            "hidden_act": ("gelu", "relu", "gelu_new"),
            "layer_norm_eps": (1e-12, 1e-2),
            "num_labels": (2, 1, 5),
        },
        refused=(("qkv_bias", {"qkv_bias": False}),),
    ),
}
