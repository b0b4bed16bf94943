"""Encoders with decoders."""

from . import Family


def bart_size(vocabulary_size, width, feed_forward, layers, heads, length):
    """Return options of BART's kin; the depths, heads and widths of the sides differ."""
    return {
        **{"vocab_size": vocabulary_size, "d_model": width, "max_position_embeddings": length},
        **{"encoder_layers": layers, "decoder_layers": layers % 3 + 1},
        **{"encoder_attention_heads": heads, "decoder_attention_heads": 2 * heads},
        **{"encoder_ffn_dim": feed_forward, "decoder_ffn_dim": feed_forward + 2},
        **{"bos_token_id": 0, "eos_token_id": 2, "forced_eos_token_id": None},
    }


BART_SIZES = (
    bart_size(61, 12, 29, 1, 1, 40),
    bart_size(97, 24, 23, 3, 2, 48),
    bart_size(131, 48, 89, 2, 3, 64),
)
BART_OPTIONS = {
    "activation_function": ("gelu", "relu", "silu", "gelu_new"),
    "scale_embedding": (False, True),
    "dropout": (0.1, 0.0),
}
# Heads of classes with both sides.
SIDE_HEADS = "ConditionalGeneration", "SequenceClassification", "QuestionAnswering"
T5_SIZES = (
    {"vocab_size": 61, "d_model": 12, "d_kv": 5, "d_ff": 29, "num_layers": 1, "num_heads": 2},
    {"vocab_size": 97, "d_model": 24, "d_kv": 7, "d_ff": 24, "num_layers": 3, "num_heads": 3},
    {"vocab_size": 131, "d_model": 48, "d_kv": 8, "d_ff": 89, "num_layers": 4, "num_heads": 6},
)
FAMILIES = {
    "bart": Family(
        classes=tuple(f"BartFor{head}" for head in SIDE_HEADS),
        sizes=BART_SIZES,
        options={**BART_OPTIONS, "pad_token_id": (1, 3), "decoder_start_token_id": (2, 5)},
    ),
    "marian": Family(
        classes=("MarianMTModel",),
        sizes=tuple(
            {
                **size,
                "pad_token_id": size["vocab_size"] - 1,
                "decoder_start_token_id": size["vocab_size"] - 1,
                "eos_token_id": 0,
            }
            for size in BART_SIZES
        ),
        options={**BART_OPTIONS, "share_encoder_decoder_embeddings": (True, False)},
    ),
    "t5": Family(
        classes=tuple(f"T5For{head}" for head in SIDE_HEADS),
        sizes=tuple({**size, "decoder_start_token_id": 0} for size in T5_SIZES),
        options={
            "num_decoder_layers": (None, 2),
            "feed_forward_proj": ("relu", "gated-gelu", "gated-silu", "gelu"),
            "layer_norm_epsilon": (1e-6, 1e-2),
            "relative_attention_num_buckets": (32, 6),
            "relative_attention_max_distance": (128, 21),
            "tie_word_embeddings": (True, False),
            "scale_decoder_outputs": (True, False),
        },
        # No distance is left for the buckets of logarithms: transformers divides by ln of less
        # than 1.
        refused=(("max_distance", {"relative_attention_max_distance": 11}),),
    ),
}
