"""Llama and the decoders like it."""

from . import Family

LAYERS, HEADS = "num_hidden_layers", "num_attention_heads"
SIZES = (
    {
        **{"vocab_size": 61, "hidden_size": 12, "intermediate_size": 29, LAYERS: 1, HEADS: 2},
        "max_position_embeddings": 64,
    },
    {
        **{"vocab_size": 97, "hidden_size": 24, "intermediate_size": 24, LAYERS: 3, HEADS: 4},
        "max_position_embeddings": 48,
    },
    {
        **{"vocab_size": 131, "hidden_size": 48, "intermediate_size": 89, LAYERS: 4, HEADS: 6},
        "max_position_embeddings": 40,
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
    rope("llama3", 500.0, factor=4.0, low_freq_factor=2.0, high_freq_factor=6.0, **ORIGINAL),
    rope("yarn", factor=4.0, truncate=False, beta_fast=8.0, beta_slow=2.0, **ORIGINAL),
    rope("yarn", factor=4.0, attention_factor=0.7, **ORIGINAL),
    rope("yarn", factor=4.0, mscale=0.8, mscale_all_dim=0.6, **ORIGINAL),
    rope("dynamic", factor=2.0),
)
GROUPS = (lambda size: size[HEADS], 1, lambda size: size[HEADS] // 2)
ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh", "relu")
OPTIONS = {
    "num_key_value_heads": GROUPS,
    "hidden_act": ACTIVATIONS,
    "rms_norm_eps": (1e-6, 1e-2),
    "tie_word_embeddings": (False, True),
    "head_dim": (8, 16),
    "rope_parameters": ROPE,
    "pad_token_id": (None, 0, 3),
    "num_labels": (2, 1, 5),
    "problem_type": (None, "multi_label_classification", "regression"),
}
SLIDING, FULL = "sliding_attention", "full_attention"
TYPES = (
    lambda size: [FULL, SLIDING, SLIDING, FULL][: size[LAYERS]],
    lambda size: [SLIDING] * size[LAYERS],
    lambda size: [FULL] * size[LAYERS],
)
# Defaults of the class are those of a large model.
GROUPED = {"num_key_value_heads": GROUPS[0]}
# A window that is shorter than a text; the layers with it are by default.
SHORT = {"sliding_window": 5}
BIASES = {"attention_bias": (False, True)}
QWEN_WINDOWS = {
    "use_sliding_window": (True, False),
    "sliding_window": (5, 9),
    "max_window_layers": (1, 0, 2),
}


TAGS, ANSWERS = "ForTokenClassification", "ForQuestionAnswering"


def classes(name, *endings, classifier=None):
    """Return a language model, features, classes of texts, and the classes with more endings."""
    own = f"{name}ForCausalLM", f"{classifier or name}Model"
    own += (f"{classifier or name}ForSequenceClassification",)
    return own + tuple(f"{name}{ending}" for ending in endings)


def padded(name):
    """Return what the classes of each token leave out: rows with padding need its id."""
    return tuple({"class": f"{name}{x}", "pad_token_id": None} for x in (TAGS, ANSWERS))


def without(options, *names):
    return {name: values for name, values in options.items() if name not in names}


GEMMA = {
    **without(OPTIONS, "hidden_act", "tie_word_embeddings", "rope_parameters"),
    **BIASES,
    "pad_token_id": (0, 3),
    "tie_word_embeddings": (True, False),
}
GEMMA2 = {
    **GEMMA,
    "hidden_activation": ("gelu_pytorch_tanh", "gelu", "silu"),
    "layer_types": TYPES,
    "sliding_window": (5, 9),
    "query_pre_attn_scalar": (256, 7),
}
UNTIED_CAP = {"tie_word_embeddings": False, "final_logit_softcapping": 5.0}
FAMILIES = {
    "gemma": Family(
        needed={**GROUPED, "head_dim": 8},
        classes=classes("Gemma", TAGS),
        sizes=SIZES,
        options={
            **GEMMA,
            "hidden_act": ("gelu_pytorch_tanh", "gelu_new", "relu"),
            "rope_parameters": ROPE,
        },
        refused=(("use_bidirectional_attention", {"use_bidirectional_attention": True}),),
    ),
    "gemma2": Family(
        needed={**GROUPED, **SHORT, "head_dim": 8},
        classes=classes("Gemma2", TAGS),
        sizes=SIZES,
        options={
            **GEMMA2,
            "rope_parameters": ROPE,
            "attn_logit_softcapping": (50.0, 3.0, None),
            "final_logit_softcapping": (5.0, None),
        },
        excluded=({**UNTIED_CAP, "class": "Gemma2ForCausalLM"},),
        refused=(("cap of logits", UNTIED_CAP),),
    ),
    "gemma3_text": Family(
        needed={**GROUPED, **SHORT, "head_dim": 8},
        classes=classes("Gemma3", classifier="Gemma3Text"),
        sizes=SIZES,
        options={
            **GEMMA2,
            "rope_parameters": (
                {SLIDING: rope("default", 100.0), FULL: rope("default", 1e4)},
                {SLIDING: rope("default", 100.0), FULL: rope("linear", 1e4, factor=3.0)},
                {SLIDING: rope("default", 50.0), FULL: rope("llama3", 1e4, factor=8.0, **LLAMA3)},
            ),
            "final_logit_softcapping": (None, 5.0),
        },
        excluded=({**UNTIED_CAP, "class": "Gemma3ForCausalLM"},),
        refused=(
            ("cap of logits", UNTIED_CAP),
            ("use_bidirectional_attention", {"use_bidirectional_attention": True}),
        ),
    ),
    "llama": Family(
        classes=classes("Llama", TAGS, ANSWERS),
        excluded=padded("Llama"),
        sizes=SIZES,
        options={**OPTIONS, **BIASES, "mlp_bias": (False, True)},
    ),
    "mistral": Family(
        needed=GROUPED,
        classes=classes("Mistral", TAGS, ANSWERS),
        excluded=padded("Mistral"),
        sizes=SIZES,
        options={**OPTIONS, "sliding_window": (5, 9, None)},
    ),
    "qwen2": Family(
        needed={**GROUPED, **SHORT, "use_sliding_window": True, "max_window_layers": 1},
        classes=classes("Qwen2", TAGS, ANSWERS),
        excluded=padded("Qwen2"),
        sizes=SIZES,
        options={**without(OPTIONS, "head_dim"), **QWEN_WINDOWS},
    ),
    "qwen3": Family(
        needed={**GROUPED, "head_dim": 8},
        classes=classes("Qwen3", TAGS, ANSWERS),
        excluded=padded("Qwen3"),
        sizes=SIZES,
        options={**OPTIONS, **BIASES, **QWEN_WINDOWS},
    ),
}
