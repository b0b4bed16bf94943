"""Forecasters of series, whose files are of the type of T5."""

from . import Family
from .sides import T5_SIZES


def binned(context_length, limits, end, more_tokens=0):
    """Return a function from a size to the options of Chronos for its vocabulary."""

    def options(size):
        return {
            "tokenizer_class": "MeanScaleUniformBins",
            "tokenizer_kwargs": {"low_limit": -limits, "high_limit": limits},
            "n_tokens": size["vocab_size"] - more_tokens,
            **{"n_special_tokens": 2, "pad_token_id": 0, "eos_token_id": 1, "use_eos_token": end},
            **{"model_type": "seq2seq", "context_length": context_length, "prediction_length": 7},
            **{"num_samples": 3, "temperature": 1.0, "top_k": 50, "top_p": 1.0},
        }

    return options


def causal(size):
    return {**BINS[0](size), "model_type": "causal"}


def patched(patch_length, context_length, end, stride=None):
    """Return the options of Chronos-Bolt for patches."""
    return {
        **{"input_patch_size": patch_length, "input_patch_stride": stride or patch_length},
        **{"context_length": context_length, "prediction_length": 7, "use_reg_token": end},
        "quantiles": [0.1, 0.35, 0.5, 0.8],
    }


BINS = binned(31, 15.0, True), binned(13, 3.5, False), binned(64, 7.0, True, more_tokens=5)
FAMILIES = {
    "chronos": Family(
        classes=("T5ForConditionalGeneration",),
        sizes=T5_SIZES,
        options={
            "chronos_config": BINS,
            "num_decoder_layers": (None, 2),
            "feed_forward_proj": ("relu", "gated-gelu"),
            "layer_norm_epsilon": (1e-6, 1e-2),
            "tie_word_embeddings": (True, False),
            "scale_decoder_outputs": (True, False),
            "decoder_start_token_id": (0,),
        },
        needed={"chronos_config": BINS[0], "decoder_start_token_id": 0},
        refused=(("model_type", {"chronos_config": causal}),),
    ),
    "chronos_bolt": Family(
        classes=("ChronosBoltModelForForecasting",),
        sizes=T5_SIZES,
        options={
            "chronos_config": (patched(4, 31, True), patched(6, 13, False, 3)),
            "num_decoder_layers": (None, 2),
            "feed_forward_proj": ("relu", "gated-gelu", "gated-silu"),
            "layer_norm_epsilon": (1e-6, 1e-2),
            "relative_attention_num_buckets": (32, 6),
            "decoder_start_token_id": (0,),
        },
        needed={"chronos_config": patched(5, 17, True), "decoder_start_token_id": 0},
        refused=(("input_patch_stride", {"chronos_config": patched(6, 13, True, 4)}),),
    ),
}
