"""Decoders with experts."""

from . import Family
from .rotary import (
    BIASES,
    GROUPED,
    LAYERS,
    OPTIONS,
    ORIGINAL,
    QWEN_WINDOWS,
    SHORT,
    SIZES,
    TYPES,
    classes,
    rope,
    without,
)

# transformers multiplies experts by rows of 16 bytes.
SMALL = tuple({**size, "intermediate_size": 12 + 8 * i} for i, size in enumerate(SIZES))
ROUTES = {"num_experts_per_tok": (2, 3)}
PLAIN = {
    "decoder_sparse_step": (1, 2),
    "mlp_only_layers": ([], [0]),
    "norm_topk_prob": (False, True),
    "moe_intermediate_size": (8, 16),
    "num_experts": (4, 5),
}
# A model must have experts in a layer.
DEEP = tuple({**size, LAYERS: 2 + i} for i, size in enumerate(SMALL))
# More experts than a token has.
WIDE = {"num_experts": 12, "moe_intermediate_size": 8}
YARN = {"truncate": False, "factor": 4.0, **ORIGINAL}
FAMILIES = {
    "gpt_oss": Family(
        needed={
            **GROUPED,
            **SHORT,
            "num_local_experts": 5,
            "rope_parameters": rope("yarn", **YARN),
        },
        classes=(*classes("GptOss"), "GptOssForTokenClassification"),
        sizes=SMALL,
        options={
            **without(OPTIONS, "hidden_act"),
            **ROUTES,
            "attention_bias": (True, False),
            "num_local_experts": (4, 5),
            "head_dim": (16, 8),
            "swiglu_limit": (7.0, 1.5),
            "swiglu_alpha": (1.702, 1.2),
            "layer_types": (None, *TYPES),
            "sliding_window": (5, 9),
            "rope_parameters": (
                rope("yarn", beta_fast=8.0, beta_slow=0.5, **YARN),
                rope("yarn", **YARN),
                rope("default"),
            ),
        },
    ),
    "mixtral": Family(
        needed={**GROUPED, "num_local_experts": 5},
        classes=classes("Mixtral"),
        sizes=SMALL,
        options={
            **OPTIONS,
            **ROUTES,
            "num_local_experts": (4, 5),
            "sliding_window": (None, 5, 9),
        },
        refused=(("num_experts_per_tok=1", {"num_experts_per_tok": 1}),),
    ),
    "qwen2_moe": Family(
        needed={
            **GROUPED,
            **WIDE,
            **SHORT,
            "shared_expert_intermediate_size": 8,
            "use_sliding_window": True,
        },
        classes=classes("Qwen2Moe"),
        sizes=DEEP,
        options={
            **without(OPTIONS, "head_dim"),
            **ROUTES,
            **PLAIN,
            **QWEN_WINDOWS,
            "qkv_bias": (True, False),
            "shared_expert_intermediate_size": (8, 20),
        },
    ),
    "qwen3_moe": Family(
        needed={**GROUPED, **WIDE},
        classes=classes("Qwen3Moe"),
        sizes=DEEP,
        options={
            **OPTIONS,
            **BIASES,
            **ROUTES,
            **PLAIN,
            **without(QWEN_WINDOWS, "max_window_layers"),
        },
    ),
}
