"""Decoders without gates: GPT-NeoX, GPT-J, Falcon, StarCoder2, OPT and BLOOM."""

from . import Family
from .more_rotary import EVEN
from .rotary import GROUPS, OPTIONS, ROPE, padded, rope

ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu")
HEADS = {name: OPTIONS[name] for name in ("pad_token_id", "num_labels", "problem_type")}
TIED, UNTIED = ({"tie_word_embeddings": values} for values in ((True, False), (False, True)))


def all_classes(name, *endings):
    """Return the classes of a family that has answers."""
    endings = ("ForSequenceClassification", "ForQuestionAnswering", *endings)
    return tuple(f"{name}{ending}" for ending in ("ForCausalLM", "Model", *endings))


def renamed(sizes, **names):
    """Return sizes with other names of some options; None leaves an option out."""
    options = ({names.get(k, k): v for k, v in size.items()} for size in sizes)
    return tuple({k: v for k, v in size.items() if k is not None} for size in options)


SUMMED_WITHOUT_BIASES = {"pretraining_tp": 2, "slow_but_exact": True}
OLD, ALL_HEADS = {"new_decoder_architecture": False}, {"multi_query": False}
FAMILIES = {
    "bloom": Family(
        classes=all_classes("Bloom", "ForTokenClassification"),
        excluded=(*padded("Bloom"), SUMMED_WITHOUT_BIASES),
        sizes=renamed(
            EVEN,
            num_hidden_layers="n_layer",
            num_attention_heads="n_head",
            intermediate_size=None,
            max_position_embeddings=None,
        ),
        options={
            **HEADS,
            **TIED,
            "layer_norm_epsilon": (1e-5, 1e-2),
            "pretraining_tp": (1, 2),
            "slow_but_exact": (False, True),
        },
        refused=(
            (
                "apply_residual_connection_post_layernorm",
                {"apply_residual_connection_post_layernorm": True},
            ),
            ("slow_but_exact", SUMMED_WITHOUT_BIASES),
        ),
    ),
    "falcon": Family(
        classes=all_classes("Falcon", "ForTokenClassification"),
        sizes=renamed(EVEN, intermediate_size="ffn_hidden_size"),
        options={
            **HEADS,
            **TIED,
            "activation": ACTIVATIONS,
            "layer_norm_epsilon": (1e-5, 1e-2),
            "bias": (False, True),
            "new_decoder_architecture": (True, False),
            "multi_query": (True, False),
            "parallel_attn": (True, False),
            "num_ln_in_parallel_attn": (None, 1, 2),
            "num_kv_heads": GROUPS,
            "rope_parameters": ROPE,
        },
        excluded=(
            *padded("Falcon"),
            {"new_decoder_architecture": True, "parallel_attn": False},
            {**OLD, "num_ln_in_parallel_attn": 2},
            *({**OLD, **ALL_HEADS, "num_kv_heads": groups} for groups in GROUPS[1:]),
        ),
        refused=(("alibi", {"alibi": True}),),
    ),
    "gpt_neox": Family(
        classes=all_classes("GPTNeoX", "ForTokenClassification"),
        excluded=padded("GPTNeoX"),
        sizes=EVEN,
        options={
            **HEADS,
            **UNTIED,
            "hidden_act": (*ACTIVATIONS, "gelu_fast"),
            "layer_norm_eps": (1e-5, 1e-2),
            "attention_bias": (True, False),
            "use_parallel_residual": (True, False),
            "rotary_pct": (0.25, 1.0, 0.5),
            "rope_parameters": (*ROPE[:2], None, rope("default", partial_rotary_factor=0.75)),
        },
    ),
    "gptj": Family(
        classes=all_classes("GPTJ"),
        needed={"rotary_dim": 4},
        excluded=padded("GPTJ"),
        sizes=renamed(
            EVEN,
            hidden_size="n_embd",
            num_hidden_layers="n_layer",
            num_attention_heads="n_head",
            intermediate_size="n_inner",
            max_position_embeddings="n_positions",
        ),
        options={
            **HEADS,
            **UNTIED,
            "activation_function": ACTIVATIONS,
            "layer_norm_epsilon": (1e-5, 1e-2),
            "rotary_dim": (2, 4, 8),
            "n_inner": (None, 37),
        },
    ),
    "opt": Family(
        classes=all_classes("OPT"),
        # Features have the width of the tokens then, which is refused.
        excluded=(*padded("OPT"), {"class": "OPTModel", "word_embed_proj_dim": 7}),
        sizes=renamed(EVEN, intermediate_size="ffn_dim"),
        options={
            **HEADS,
            **TIED,
            "activation_function": ("relu", "gelu", "gelu_new"),
            "do_layer_norm_before": (True, False),
            "word_embed_proj_dim": (None, 7),
            "enable_bias": (True, False),
        },
        refused=(
            ("_remove_final_layer_norm", {"_remove_final_layer_norm": True}),
            ("layer_norm_elementwise_affine", {"layer_norm_elementwise_affine": False}),
            ("word_embed_proj_dim", {"class": "OPTModel", "word_embed_proj_dim": 7}),
        ),
    ),
}
