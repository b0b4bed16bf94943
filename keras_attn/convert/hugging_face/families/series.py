"""Models of series of numbers: PatchTST."""

from keras_attn import layers, models
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.families.family import (
    FIRST,
    Family,
    build,
    read_options,
    read_part,
)
from keras_attn.convert.hugging_face.heads import class_options
from keras_attn.convert.hugging_face.weights import Fold, copy, copy_part, copy_table
from keras_attn.layers.series_heads import DISTRIBUTIONS
from keras_attn.norms import BatchNorm, LayerNorm
from keras_attn.residuals import PreNorm

FORECAST, CLASSES, VALUES, PATCHES = (
    f"PatchTSTFor{task}" for task in ("Prediction", "Classification", "Regression", "Pretraining")
)
_NORMS = {"batchnorm": BatchNorm, "layernorm": LayerNorm}


class PatchTST(Family):
    """PatchTST with one of four heads.

    A series is read with its missing values, which transformers asks to be replaced before. The
    outputs are those of its model where each is replaced by the number that the scaler turns to 0.
    A `share_projection` of False is converted too, with which transformers 5 computes nothing.
    """

    model_classes = (models.Forecaster, models.Classifier)
    prefix = "model."
    heads = ("head",)
    block = {
        "attention.query": "self_attn.q_proj",
        "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj",
        "attention.output": "self_attn.out_proj",
        "feed_forward.intermediate": "ff.0",
        "feed_forward.output_dense": "ff.3",
    }
    norms = {
        "attention_residual": "norm_sublayer1",
        "channel_residual": "norm_sublayer2",
        "feed_forward_residual": "norm_sublayer3",
    }
    # The path in the model of each option of `config.json`.
    paths = {
        "patch_length": "embedding.patches.patch_length",
        "patch_stride": "embedding.patches.stride",
        "d_model": "embedding.hidden_dim",
        "share_embedding": "embedding.shared",
        "use_cls_token": "embedding.class_token",
        "num_hidden_layers": "encoder.num_layers",
        "num_attention_heads": f"{FIRST}.attention.num_heads",
        "attention_dropout": f"{FIRST}.attention.dropout",
        "ffn_dim": f"{FIRST}.feed_forward.intermediate_dim",
        "ff_dropout": f"{FIRST}.feed_forward.dropout",
        "bias": f"{FIRST}.feed_forward.use_bias",
        "path_dropout": f"{FIRST}.dropout",
        "positional_dropout": "dropout",
        "norm_eps": f"{FIRST}.attention_residual.norm.epsilon",
    }

    def convert(self, checkpoint, overrides):
        """Return a `Forecaster` or a `Classifier` with the weights of a checkpoint."""
        checkpoint.strip("model.")
        model = build(models.patch_tst, self.arguments(checkpoint.config), overrides)
        self.copy_weights(checkpoint, model)
        return model

    def arguments(self, config):
        """Return the arguments of `models.patch_tst` for a configuration."""
        epsilon, rate = config.number("norm_eps", 1e-5), config.number("path_dropout", 0.0)
        norm = _NORMS[_choice(config, "norm_type", ("batchnorm", "layernorm"))](epsilon=epsilon)
        position = _choice(config, "positional_encoding_type", ("sincos", "random"))
        scaling = config.values.get("scaling", "std")
        scaler = "mean" if scaling is True else scaling if scaling in ("std", "mean") else "none"
        return {
            "context_length": config.size("context_length", 32),
            "num_channels": config.size("num_input_channels", 1),
            "patch_length": config.size("patch_length", 1),
            "stride": config.size("patch_stride", 1),
            "num_layers": config.size("num_hidden_layers", 3),
            "num_heads": config.size("num_attention_heads", 4),
            "hidden_dim": config.size("d_model", 128),
            "intermediate_dim": config.size("ffn_dim", 512),
            "dropout": rate,
            "attention_dropout": config.number("attention_dropout", 0.0),
            "feed_forward_dropout": config.number("ff_dropout", 0.0),
            "embedding_dropout": config.number("positional_dropout", 0.0),
            "head_dropout": config.number("head_dropout", 0.0),
            "activation": config.activation("activation_function", "gelu"),
            "use_bias": config.flag("bias", True),
            "norm": norm,
            "residual": "pre_norm" if config.flag("pre_norm", True) else "post_norm",
            "position": "sinusoidal" if position == "sincos" else "learned",
            "scaler": layers.SeriesScaler(scaler, epsilon=1e-5),
            "channel_attention": config.flag("channel_attention"),
            "shared": config.flag("share_embedding", True),
            "class_token": config.flag("use_cls_token"),
            "mask_empty": False,
            **self.head_arguments(config),
        }

    def head_arguments(self, config):
        """Return the arguments of `models.patch_tst` that are of the head."""
        names = config.strings("architectures") or [FORECAST]
        pooling = config.values.get("pooling_type", "mean")  # null is a choice of its own
        if config.flag("use_cls_token"):
            pooling = "first"
        elif pooling not in ("mean", "max", None):
            config.refuse(f"The option pooling_type={pooling!r} is not converted.")
        loss = config.values.get("loss", "mse")
        if names[0] == FORECAST:
            choice = _choice(config, "distribution_output", ("student_t", *DISTRIBUTIONS))
            return {
                "prediction_length": config.size("prediction_length", 24),
                "distribution": None if loss == "mse" else choice,
                "pooling": "flatten" if pooling is None else pooling,
                "shared_head": config.flag("share_projection", True),
            }
        if names[0] == PATCHES:
            return {"masking": self.masking(config)}
        if names[0] not in (CLASSES, VALUES):
            config.refuse(
                f"A {names[0]} is not converted, only a PatchTST that predicts values, classes, "
                "next values or masked patches."
            )
        if pooling is None:
            config.refuse(
                f"A {names[0]} with pooling_type=None is not converted: transformers refuses it."
            )
        if names[0] == CLASSES:
            return {"num_classes": config.size("num_targets", 1), "pooling": pooling}
        if loss != "mse":
            config.refuse(f"The option loss={loss!r} of a {VALUES} is not converted.")
        bounds = config.get("output_range")
        return {
            "num_targets": config.size("num_targets", 1),
            "target_range": None if bounds is None else tuple(bounds),
            "pooling": pooling,
        }

    def masking(self, config):
        """Return the layer that chooses masked patches."""
        config.require(unmasked_channel_indices=None)
        last = None
        if _choice(config, "mask_type", ("random", "forecast")) == "forecast":
            last = config.get("num_forecast_mask_patches", [2])
            last = last[0] if isinstance(last, list) and len(last) == 1 else last
            if not isinstance(last, int):
                config.refuse(
                    f"The option num_forecast_mask_patches={last!r} is not converted, only one "
                    "number for all rows."
                )
        return layers.PatchMasking(
            config.number("random_mask_ratio", 0.5),
            last,
            config.flag("channel_consistent_masking"),
            config.get("mask_value", 0),
        )

    def copy_weights(self, checkpoint, model):
        self._copy_embeddings(checkpoint, model)
        for index, block in enumerate(model.encoder.blocks):
            prefix = f"encoder.layers.{index}."
            copy_table(checkpoint, block, self.block, prefix)
            for path, name in self.norms.items():
                if getattr(block, path, None) is not None:
                    _copy_norm(checkpoint, getattr(block, path).norm, prefix + name)
        self._copy_head(checkpoint, model)

    def _copy_embeddings(self, checkpoint, model):
        """Copy the kernels of patches, one for all channels or one each, and the positions."""
        embedding, name = model.embedding, "encoder.embedder.input_embedding"
        if embedding.shared:
            copy(checkpoint, embedding.kernel, f"{name}.weight", transpose=True)
            copy(checkpoint, embedding.bias, f"{name}.bias")
        else:
            count = embedding.kernel.shape[0]
            _copy_each(checkpoint, embedding, [f"{name}.{i}" for i in range(count)])
        name, width = "encoder.positional_encoder", embedding.hidden_dim
        if embedding.class_token:
            token = Fold([embedding.token], (1, 1, 1, width))
            checkpoint.transfer(f"{name}.cls_token", token)
        copy(checkpoint, model.position.table, f"{name}.position_enc")

    def _copy_head(self, checkpoint, model):
        head = model.head
        if isinstance(model, models.Classifier):
            copy_part(checkpoint, model, "head", "head.linear")
        elif isinstance(head, layers.MaskedPatchHead):
            copy_part(checkpoint, head, "dense", "head.linear")
        elif isinstance(head, layers.RegressionHead):
            copy_part(checkpoint, head, "dense", "head.projection")
        else:
            names = ["head.projection"]
            if not head.shared:
                names = [f"head.projections.{i}" for i in range(head.num_channels)]
            if head.distribution is not None:
                names = [f"{name}.proj.{i}" for name in names for i in range(head.num_outputs)]
            _copy_each(checkpoint, head, names)

    def fits(self, model):
        is_classifier = isinstance(model, models.Classifier)
        return not is_classifier or model.series_shape is not None

    def options(self, model):
        first = read_part(model, FIRST)
        norm = read_part(model, f"{FIRST}.attention_residual.norm")
        kinds = {kind: name for name, kind in _NORMS.items()}
        is_classifier = isinstance(model, models.Classifier)
        scaler = model.embedding.scaler if is_classifier else model.scaler
        shape = model.series_shape if is_classifier else (model.context_length, model.num_channels)
        return {
            **read_options(model, self.paths),
            "context_length": shape[0],
            "num_input_channels": shape[1],
            "activation_function": activation_name(first.feed_forward.activation),
            "norm_type": kinds.get(type(norm), "batchnorm"),
            "pre_norm": isinstance(first.residual, PreNorm),
            "positional_encoding_type": "random" if model.position.trainable else "sincos",
            "scaling": None if scaler.kind == "none" else scaler.kind,
            "channel_attention": getattr(first, "num_channels", None) is not None,
            **self.head_options(model),
        }

    def head_options(self, model):
        """Return the options that are of the head."""
        head = model.head
        if isinstance(model, models.Classifier):
            rate = 0.0 if model.pooler is None else model.pooler.rate
            options = {"architectures": [CLASSES], "num_targets": model.num_classes}
            pooling = {"pooling_type": _pooling_type(model.pooling), "head_dropout": rate}
            return {**options, **pooling, **class_options(model)}
        options = {"head_dropout": head.dropout}
        if isinstance(head, layers.MaskedPatchHead):
            masking = model.masking
            return {
                **options,
                "architectures": [PATCHES],
                "do_mask_input": True,
                "mask_type": "random" if masking.num_last is None else "forecast",
                "random_mask_ratio": masking.ratio,
                "num_forecast_mask_patches": [masking.num_last or 2],
                "channel_consistent_masking": masking.channel_consistent,
                "mask_value": int(masking.value),  # transformers takes no other
            }
        options["pooling_type"] = _pooling_type(head.pool)
        if isinstance(head, layers.RegressionHead):
            bounds = None if head.target_range is None else list(head.target_range)
            targets = {"num_targets": head.num_targets, "output_range": bounds}
            return {**options, "architectures": [VALUES], **targets}
        if head.quantiles is not None:
            raise ValueError(
                "`model` fits no family of checkpoints: a PatchTST of transformers predicts points "
                f"or a distribution. Received: quantiles={head.quantiles}."
            )
        return {
            **options,
            "architectures": [FORECAST],
            "prediction_length": head.prediction_length,
            "share_projection": head.shared,
            "loss": "mse" if head.distribution is None else "nll",
            "distribution_output": head.distribution or "student_t",
        }

    def build(self, config, model):
        return models.patch_tst(**self.arguments(config))


def _pooling_type(pool):
    """Return the option for a pooling; the first vector is read because of another option."""
    return {"flatten": None, "first": "mean"}.get(pool.pooling, pool.pooling)


def _choice(config, name, choices):
    """Return an option that is one of some names, of which the first is the default."""
    value = config.get(name, choices[0])
    if value not in choices:
        config.refuse(f"The option {name}={value!r} is not converted.")
    return value


def _copy_norm(checkpoint, norm, name):
    """Copy a norm, with the averages of one that has some."""
    if not isinstance(norm, BatchNorm):
        return copy_part(checkpoint, norm, "", name)
    name = f"{name}.batchnorm"
    tensors = {"weight": norm.gamma, "bias": norm.beta}
    tensors |= {"running_mean": norm.mean, "running_var": norm.variance}
    for end, weight in tensors.items():
        copy(checkpoint, weight, f"{name}.{end}")
    # The number of steps has no influence: the averages have a fixed rate.
    checkpoint.transfer_constant(f"{name}.num_batches_tracked", ())


def _copy_each(checkpoint, layer, names):
    """Copy kernels (E, inputs, outputs) and biases (E, outputs) of linear layers of E names."""
    checkpoint.transfer_each([f"{name}.weight" for name in names], layer.kernel)
    checkpoint.transfer_each([f"{name}.bias" for name in names], layer.bias)
