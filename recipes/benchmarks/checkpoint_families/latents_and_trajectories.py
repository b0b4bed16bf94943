"""Perceiver, whose blocks run on latents, and the Decision Transformer."""

from . import Family

# All vocabularies have the ids of the byte tokenizer, which the folder names.
PERCEIVER_SIZES = tuple(
    {
        **{"vocab_size": vocabulary, "d_model": width, "d_latents": latent, "num_latents": count},
        **{"num_self_attends_per_block": num_blocks, "max_position_embeddings": length},
    }
    for vocabulary, width, latent, count, num_blocks, length in (
        (262, 24, 12, 5, 1, 11),
        (263, 40, 24, 7, 3, 17),
        (271, 16, 48, 3, 2, 5),
    )
)
TRAJECTORY_SIZES = tuple(
    {
        **{"state_dim": state, "act_dim": action, "hidden_size": width, "n_head": num_heads},
        **{"n_layer": num_layers, "max_ep_len": length},
    }
    for state, action, width, num_heads, num_layers, length in (
        (5, 3, 12, 1, 1, 11),
        (17, 1, 24, 4, 3, 13),
        (1, 7, 48, 6, 2, 29),
    )
)
FAMILIES = {
    "perceiver": Family(
        classes=("PerceiverForMaskedLM",),
        sizes=PERCEIVER_SIZES,
        needed={
            "num_self_attention_heads": 2,
            "num_cross_attention_heads": 4,
            "pad_token_id": 0,
        },
        options={
            "num_self_attention_heads": (2, 4),
            "num_cross_attention_heads": (4, 2),
            "qk_channels": (None, 8),
            "v_channels": (None, lambda size: size["d_latents"]),
            "cross_attention_shape_for_attention": ("kv", "q"),
            "self_attention_widening_factor": (1, 3),
            "cross_attention_widening_factor": (1, 2),
            "hidden_act": ("gelu", "relu", "gelu_new"),
            "layer_norm_eps": (1e-12, 1e-2),
            "use_query_residual": (True, False),
            "pad_token_id": (0, 7),
        },
        # transformers has no projection from values of another width.
        excluded=({"qk_channels": 8, "v_channels": None},),
        refused=(("num_blocks", {"num_blocks": 2}),),
    ),
    "decision_transformer": Family(
        classes=("DecisionTransformerModel",),
        sizes=TRAJECTORY_SIZES,
        options={
            "n_inner": (None, 19),
            "n_positions": (37, 5),
            "activation_function": ("relu", "gelu_new", "gelu", "silu"),
            "layer_norm_epsilon": (1e-5, 1e-2),
            "action_tanh": (True, False),
            "scale_attn_weights": (True, False),
            "scale_attn_by_inverse_layer_idx": (False, True),
        },
    ),
}
