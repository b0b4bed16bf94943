"""Encoder-decoders: kin of T5, and of BART with norms before the sublayers."""

from . import Family
from .sides import SIDE_HEADS

T5_SIZES = tuple(
    {
        **{"vocab_size": size, "d_model": width, "d_kv": key_dim, "d_ff": hidden},
        **{"num_layers": num_layers, "num_heads": num_heads},
    }
    for size, width, key_dim, hidden, num_layers, num_heads in (
        (61, 12, 5, 29, 1, 2),
        (97, 24, 8, 23, 3, 4),
        (131, 48, 7, 89, 2, 6),
    )
)
T5_OPTIONS = {
    "num_decoder_layers": (lambda size: size["num_layers"], 1, 4),
    "feed_forward_proj": ("gated-gelu", "relu", "gated-silu", "gelu", "gated-relu"),
    "layer_norm_epsilon": (1e-6, 1e-2),
    "relative_attention_num_buckets": (8, 32),
    "relative_attention_max_distance": (19, 40),
    "pad_token_id": (0, 3),
    "decoder_start_token_id": (0, 2),
}
SCALED = {"scale_decoder_outputs": (True, False)}
SIDES = tuple(
    {
        **{"vocab_size": size, "d_model": width, "max_position_embeddings": length},
        **{"encoder_attention_heads": heads[0], "decoder_attention_heads": heads[1]},
        **{"encoder_ffn_dim": hidden[0], "decoder_ffn_dim": hidden[1]},
    }
    for size, width, length, heads, hidden in (
        (61, 12, 40, (2, 3), (29, 17)),
        (97, 24, 48, (4, 2), (23, 24)),
        (131, 48, 64, (6, 8), (89, 97)),
    )
)
SIDE_OPTIONS = {
    "encoder_layers": (1, 3),
    "decoder_layers": (2, 1, 4),
    "activation_function": ("gelu", "relu", "gelu_new", "swish"),
    "scale_embedding": (False, True),
    "tie_word_embeddings": (True, False),
    "pad_token_id": (1, 5),
}
NUMBERS = {"encoder_layers": 2, "decoder_layers": 3}
SWITCH_OPTIONS = {
    **{k: v for k, v in T5_OPTIONS.items() if k != "feed_forward_proj"},
    "num_sparse_encoder_layers": (3, 1, 0, 7),
    "num_sparse_decoder_layers": (1, 2),
    "num_experts": (2, 5),
    "expert_capacity": (3, 64),
    "router_bias": (False, True),
    "dense_act_fn": ("relu", "gelu", "silu"),
}


def kin_of_t5(name):
    """Return the classes of a family: with a decoder, and of an encoder alone."""
    both_sides = tuple(f"{name}For{head}" for head in SIDE_HEADS)
    return *both_sides, f"{name}EncoderModel", f"{name}ForTokenClassification"


FAMILIES = {
    "switch_transformers": Family(
        ("SwitchTransformersForConditionalGeneration", "SwitchTransformersEncoderModel"),
        T5_SIZES,
        SWITCH_OPTIONS,
        needed={"decoder_start_token_id": 0},
        refused=(
            ("untied", {"tie_word_embeddings": False}),
            ("router_dtype", {"router_dtype": "bfloat16"}),
        ),
    ),
    "mt5": Family(kin_of_t5("MT5"), T5_SIZES, T5_OPTIONS),
    "umt5": Family(kin_of_t5("UMT5"), T5_SIZES, {**T5_OPTIONS, **SCALED}),
    "mbart": Family(
        tuple(f"MBartFor{head}" for head in SIDE_HEADS),
        SIDES,
        {**SIDE_OPTIONS, "decoder_start_token_id": (None, 2, 7)},
        needed=NUMBERS,
        # The sides have tables of their own then.
        excluded=tuple(
            {"class": f"MBartFor{head}", "tie_word_embeddings": False} for head in SIDE_HEADS[1:]
        ),
    ),
    "m2m_100": Family(
        ("M2M100ForConditionalGeneration",),
        SIDES,
        {**SIDE_OPTIONS, "decoder_start_token_id": (2, 7)},
        needed=NUMBERS,
        refused=(("decoder_start_token_id", {"decoder_start_token_id": 1}),),
    ),
    "pegasus": Family(
        ("PegasusForConditionalGeneration",),
        SIDES,
        {**SIDE_OPTIONS, "pad_token_id": (0, 5), "decoder_start_token_id": (0, 7)},
        needed=NUMBERS,
    ),
}
