"""Chronos: T5 on the binned values of a series."""

from keras_attn import layers, models
from keras_attn.convert.hugging_face.config import Config
from keras_attn.convert.hugging_face.families.family import build
from keras_attn.convert.hugging_face.families.t5 import T5

_NAME = "MeanScaleUniformBins"  # the only class of tokenizers that chronos-forecasting has


class ChronosT5(T5):
    """Chronos, whose `config.json` is a T5 configuration with `chronos_config`."""

    model_classes = (models.TokenForecaster,)
    side_head_names = {}
    # How many paths are drawn, and from what, changes no logits.
    free = (*T5.free, "num_samples", "temperature", "top_k", "top_p")

    def fits(self, model):
        return True

    def build_sides(self, config, tied, overrides):
        has_gates, activation = self.feed_forward_of(config)
        arguments = {
            **self.arguments(config),
            "intermediate_dim": config.size("d_ff"),
            "gated": has_gates,
            "activation": activation,
            "tied": tied,
            **_forecast_arguments(Config(config.folder, config.options("chronos_config"))),
        }
        pad_id = arguments.pop("pad_id")
        if pad_id != arguments["bins"].pad_id:
            config.refuse(
                f"The id of padding must be that of missing values, {arguments['bins'].pad_id}, "
                f"not pad_token_id={pad_id}."
            )
        return build(models.chronos_t5, arguments, overrides)

    def options(self, model):
        bins = model.bins
        return {
            **super().options(model),
            "model_type": "t5",
            "decoder_start_token_id": model.start_id,
            "eos_token_id": bins.end_id,
            "chronos_config": {
                "tokenizer_class": _NAME,
                "tokenizer_kwargs": {"low_limit": bins.low, "high_limit": bins.high},
                "context_length": model.context_length,
                "prediction_length": model.prediction_length,
                "n_tokens": bins.num_tokens,
                "n_special_tokens": bins.num_special,
                "pad_token_id": bins.pad_id,
                "eos_token_id": bins.end_id,
                "use_eos_token": bins.append_end,
                "model_type": "seq2seq",
                "num_samples": model.num_samples,
                "temperature": model.temperature,
                "top_k": model.top_k or 0,
                "top_p": 1.0 if model.top_p is None else model.top_p,
            },
        }


def _forecast_arguments(config):
    """Return the arguments of `models.chronos_t5` of the options in `chronos_config`."""
    config.require(tokenizer_class=_NAME, model_type="seq2seq")
    limits = Config(config.folder, config.options("tokenizer_kwargs") or {})
    bins = layers.SeriesBins(
        config.size("n_tokens"),
        limits.real("low_limit"),
        limits.real("high_limit"),
        config.size("n_special_tokens"),
        config.index("pad_token_id", 0),
        config.index("eos_token_id", 1),
        config.flag("use_eos_token", True),
    )
    top_p = config.number("top_p", 1.0)
    return {
        "bins": bins,
        "context_length": config.size("context_length"),
        "prediction_length": config.size("prediction_length"),
        "num_samples": config.size("num_samples"),
        "temperature": config.positive("temperature", 1.0),
        "top_k": config.index("top_k", 0) or None,  # 0 for all tokens
        "top_p": top_p if 0 < top_p < 1 else None,  # as transformers reads it
    }
