"""Models of series of numbers."""

from . import Family

FORECAST, CLASSES, VALUES, PATCHES = (
    f"PatchTSTFor{task}" for task in ("Prediction", "Classification", "Regression", "Pretraining")
)
SIZES = tuple(
    {
        **{"num_input_channels": channels, "context_length": length, "patch_length": patch},
        **{"patch_stride": stride, "d_model": width, "num_hidden_layers": num_layers},
        **{"num_attention_heads": num_heads, "ffn_dim": intermediate},
    }
    for channels, length, patch, stride, width, num_layers, num_heads, intermediate in (
        (3, 23, 5, 2, 12, 1, 2, 29),
        (1, 17, 4, 4, 24, 3, 4, 11),
        (5, 31, 3, 1, 16, 2, 1, 37),
    )
)
FAMILIES = {
    "patchtst": Family(
        classes=(FORECAST, CLASSES, VALUES, PATCHES),
        sizes=SIZES,
        options={
            "share_embedding": (True, False),
            "pre_norm": (True, False),
            "norm_type": ("batchnorm", "layernorm"),
            "norm_eps": (1e-5, 1e-2),
            "channel_attention": (False, True),
            "use_cls_token": (False, True),
            "positional_encoding_type": ("sincos", "random"),
            "pooling_type": ("mean", "max", None),
            "scaling": ("std", "mean", None, True),
            "activation_function": ("gelu", "relu"),
            "bias": (True, False),
            "loss": ("mse", "nll"),
            "distribution_output": ("student_t", "normal", "negative_binomial"),
            "prediction_length": (24, 7),
            "num_targets": (2, 3),
            "output_range": (None, [-1.0, 2.0]),
            "mask_type": ("random", "forecast"),
            "random_mask_ratio": (0.5, 0.3),
            "num_forecast_mask_patches": ([2], 1),
            "channel_consistent_masking": (False, True),
            "mask_value": (0, 3),
        },
        excluded=(
            {"class": CLASSES, "pooling_type": None},
            {"class": VALUES, "pooling_type": None},
            {"class": VALUES, "loss": "nll"},
        ),
        refused=(
            (
                "num_forecast_mask_patches",
                {"class": PATCHES, "mask_type": "forecast", "num_forecast_mask_patches": [1, 2]},
            ),
            ("unmasked_channel_indices", {"class": PATCHES, "unmasked_channel_indices": [0]}),
        ),
    ),
}
