"""Chronos and Chronos-Bolt: T5 on the binned values, and on the patches, of a series."""

from keras_attn import layers, models
from keras_attn.convert.hugging_face.config import Config
from keras_attn.convert.hugging_face.families.family import SIDES, build, read_options
from keras_attn.convert.hugging_face.families.t5 import T5
from keras_attn.convert.hugging_face.weights import copy_part

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
        inner = Config(config.folder, config.options("chronos_config"))
        arguments = {
            **self.side_arguments(config),
            "tied": tied,
            **_sampling_arguments(inner),
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


def _sampling_arguments(config):
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


class ChronosBolt(T5):
    """Chronos-Bolt, of T5's blocks without its embeddings of texts and its head."""

    model_classes = (models.PatchForecaster,)
    heads = ()
    side_head_names = {}
    projections = {"input_projection": "input_patch_embedding", "head": "output_patch_embedding"}

    def convert(self, checkpoint, overrides):
        for side in SIDES:
            checkpoint.drop_copy(f"{side}.embed_tokens.weight", self.table)
        checkpoint.ignore("lm_head.weight")
        cross = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
        checkpoint.ignore(cross)
        model = self.build_bolt(checkpoint.config, overrides)
        self.copy_weights(checkpoint, model)
        return model

    def fits(self, model):
        return True

    def build(self, config, model):
        return self.build_bolt(config, {})

    def build_bolt(self, config, overrides):
        """Return the model of a configuration."""
        inner = Config(config.folder, config.options("chronos_config"))
        patch_length = inner.size("input_patch_size")
        stride = inner.size("input_patch_stride")
        if patch_length % stride:
            config.refuse(
                "The option input_patch_stride must divide input_patch_size, since others leave "
                f"the last values out. It is {stride}."
            )
        start_id = config.index("decoder_start_token_id", 0)
        if start_id != 0:
            config.refuse(f"The decoder must start with the id 0, not {start_id}.")
        arguments = self.side_arguments(config)
        for name in ("vocabulary_size", "pad_id", "start_id"):
            del arguments[name]
        arguments |= {
            "context_length": inner.size("context_length"),
            "prediction_length": inner.size("prediction_length"),
            "patch_length": patch_length,
            "stride": stride,
            "quantiles": inner.levels("quantiles"),
            "end_token": inner.flag("use_reg_token"),
        }
        return build(models.chronos_bolt, arguments, overrides)

    def copy_weights(self, checkpoint, model):
        self.copy_embedding(checkpoint, model.embedding)
        for part, prefix in self.projections.items():
            for layer in ("hidden", "output", "residual"):
                path = f"{part}.{layer}_dense"
                copy_part(checkpoint, model, path, f"{prefix}.{layer}_layer")
        for side in SIDES:
            copy_part(checkpoint, model, f"{side}.norm", f"{side}.final_layer_norm")
        self.copy_sides(checkpoint, model)

    def shared_options(self, model):
        return read_options(model, self.paths)

    def options(self, model):
        return {
            **super().options(model),
            "model_type": "t5",
            "architectures": ["ChronosBoltModelForForecasting"],
            "chronos_pipeline_class": "ChronosBoltPipeline",
            "is_encoder_decoder": True,
            "pad_token_id": 0,
            "decoder_start_token_id": 0,
            "chronos_config": {
                "context_length": model.context_length,
                "prediction_length": model.prediction_length,
                "input_patch_size": model.patches.patch_length,
                "input_patch_stride": model.patches.stride,
                "quantiles": list(model.quantiles),
                "use_reg_token": model.embedding.vocabulary_size > 1,
            },
        }
