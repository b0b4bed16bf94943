"""Decoders with rotary positions."""

from ..checkpoint_cases import Family

LAYERS, HEADS = "num_hidden_layers", "num_attention_heads"
SIZES = (
    {
        **{"vocab_size": 61, "hidden_size": 12, "intermediate_size": 29, LAYERS: 1, HEADS: 2},
        **{"max_position_embeddings": 64, "pad_token_id": None},
    },
    {
        **{"vocab_size": 97, "hidden_size": 24, "intermediate_size": 24, LAYERS: 3, HEADS: 4},
        **{"max_position_embeddings": 48, "pad_token_id": None},
    },
    {
        **{"vocab_size": 131, "hidden_size": 48, "intermediate_size": 89, LAYERS: 4, HEADS: 6},
        **{"max_position_embeddings": 40, "pad_token_id": None},
    },
)


def rope(kind, theta=1000.0, **options):
    """Return `rope_parameters`."""
    return {"rope_type": kind, "rope_theta": theta, **options}


ORIGINAL = {"original_max_position_embeddings": 8}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, **ORIGINAL}
ROPE = (
    rope("default"),
    rope("linear", factor=3.0),
    rope("llama3", factor=8.0, **LLAMA3),
    rope("yarn", factor=4.0, **ORIGINAL),
)
OPTIONS = {
    "num_key_value_heads": (lambda size: size[HEADS], 1, lambda size: size[HEADS] // 2),
    "hidden_act": ("silu", "gelu", "gelu_pytorch_tanh", "relu"),
    "rms_norm_eps": (1e-6, 1e-2),
    "tie_word_embeddings": (False, True),
    "head_dim": (8, 16),
    "rope_parameters": ROPE,
}
FAMILIES = {
    "llama": Family(
        classes=("LlamaForCausalLM",),
        sizes=SIZES,
        options={**OPTIONS, "attention_bias": (False, True), "mlp_bias": (False, True)},
        refused=(("dynamic", {"rope_parameters": rope("dynamic", factor=2.0)}),),
    ),
}
