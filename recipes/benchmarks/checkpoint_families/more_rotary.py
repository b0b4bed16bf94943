"""Decoders with norms of outputs, parallel blocks, joined layers or folded factors."""

from . import Family
from .rotary import (
    BIASES,
    FULL,
    GROUPED,
    LAYERS,
    LLAMA3,
    OPTIONS,
    ORIGINAL,
    ROPE,
    SHORT,
    SIZES,
    SLIDING,
    TYPES,
    classes,
    rope,
    without,
)

HEAD_SIZE, PARTIAL = "head_dim", "partial_rotary_factor"
FIXED_HEADS = without(OPTIONS, HEAD_SIZE)
# Texts of the comparison have 23 tokens: short ones here.
LONG = {"original_max_position_embeddings": 32}
EVEN = tuple({**size, "hidden_size": 8 * size["num_attention_heads"]} for size in SIZES)


def longrope(pairs, **options):
    """Return longrope with factors of so many pairs."""
    short, long = ([start + n / 4 for n in range(pairs)] for start in (1.0, 3.0))
    return rope("longrope", short_factor=short, long_factor=long, **LONG, **options)


def nested(sliding, full):
    return {SLIDING: sliding, FULL: full}


FAMILIES = {
    "granite": Family(
        classes=("GraniteForCausalLM", "GraniteModel"),
        sizes=SIZES,
        options={
            **without(FIXED_HEADS, "num_labels"),
            **BIASES,
            "mlp_bias": (False, True),
            "embedding_multiplier": (1.0, 3.0),
            "attention_multiplier": (1.0, 0.3),
            "residual_multiplier": (1.0, 0.4),
            "logits_scaling": (1.0, 2.5),
        },
    ),
    "olmo2": Family(classes=classes("Olmo2"), sizes=SIZES, options={**FIXED_HEADS, **BIASES}),
    "olmo3": Family(
        needed=SHORT,
        classes=classes("Olmo3"),
        sizes=SIZES,
        options={
            **FIXED_HEADS,
            **BIASES,
            "rope_parameters": (
                nested(rope("default"), rope("default")),
                nested(rope("default", 500.0), rope("yarn", factor=4.0, beta_fast=8.0, **ORIGINAL)),
                nested(rope("default"), rope("llama3", factor=4.0, **LLAMA3)),
                nested(rope("linear", factor=2.0), rope("yarn", factor=4.0, **ORIGINAL)),
            ),
            "layer_types": (None, *TYPES),
            "sliding_window": (5, 9),
        },
    ),
    "phi": Family(
        classes=(
            "PhiForCausalLM",
            "PhiModel",
            "PhiForSequenceClassification",
            "PhiForTokenClassification",
        ),
        sizes=EVEN,
        options={
            **without(FIXED_HEADS, "rms_norm_eps"),
            "hidden_act": ("gelu_new", "gelu", "relu", "silu"),
            "layer_norm_eps": (1e-5, 1e-2),
            "qk_layernorm": (False, True),
            PARTIAL: (0.5, 1.0, 0.8),
            "rope_parameters": ROPE,
        },
    ),
    "phi3": Family(
        needed={"vocab_size": 32003},  # beyond the id of padding
        classes=(
            "Phi3ForCausalLM",
            "Phi3Model",
            "Phi3ForSequenceClassification",
            "Phi3ForTokenClassification",
        ),
        sizes=EVEN,
        options={
            **FIXED_HEADS,
            PARTIAL: (0.75,),
            "original_max_position_embeddings": (32,),
            "rope_parameters": (
                rope("default"),
                longrope(3),
                longrope(3, factor=3.0),
                longrope(3, attention_factor=1.3),
            ),
            "sliding_window": (None, 5, 9),
        },
    ),
    "smollm3": Family(
        # A vocabulary beyond the id of padding.
        needed={**GROUPED, **SHORT, "use_sliding_window": True, "vocab_size": 128009},
        classes=(*classes("SmolLM3"), "SmolLM3ForQuestionAnswering"),
        sizes=SIZES,
        options={
            **FIXED_HEADS,
            **BIASES,
            "mlp_bias": (False, True),
            "no_rope_layers": (
                None,
                lambda size: [1, 0, 0, 1][: size[LAYERS]],
                lambda size: [1] * size[LAYERS],
            ),
            "no_rope_layer_interval": (4, 2),
            "use_sliding_window": (False, True),
            "sliding_window": (None, 5),
        },
    ),
    "starcoder2": Family(
        needed=GROUPED,
        classes=(*classes("Starcoder2"), "Starcoder2ForTokenClassification"),
        sizes=SIZES,
        options={
            **without(OPTIONS, "rms_norm_eps"),
            "hidden_act": ("gelu_pytorch_tanh", "gelu", "relu", "silu"),
            "norm_epsilon": (1e-5, 1e-2),
            "use_bias": (True, False),
            "sliding_window": (None, 5, 9),
        },
    ),
}
