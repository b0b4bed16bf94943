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
}
