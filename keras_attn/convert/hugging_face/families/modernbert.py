"""ModernBERT."""

from keras_attn import layers, models, norms, patterns, positions
from keras_attn.convert.hugging_face.config import (
    FULL,
    SLIDING,
    activation_name,
    layer_types,
)
from keras_attn.convert.hugging_face.families.encoder_family import EncoderFamily
from keras_attn.convert.hugging_face.families.family import (
    FIRST,
    build,
    read_options,
    read_part,
    read_sizes,
)
from keras_attn.convert.hugging_face.families.rotary_positions import read_rotary
from keras_attn.convert.hugging_face.heads import (
    ANSWERS,
    CLASSES,
    TAGS,
    TOKENS,
)
from keras_attn.convert.hugging_face.weights import (
    copy_joined_denses,
    copy_joined_heads,
    copy_part,
    copy_table,
)

TOKEN_HEAD = {
    "head.transform.dense": "head.dense",
    "head.transform.norm": "head.norm",
    "head.head": "classifier",
}
POOLINGS = {"cls": "first", "mean": "mean"}
WAVELENGTHS = {FULL: 160000.0, SLIDING: 10000.0}


class ModernBert(EncoderFamily):
    """ModernBERT, whose heads all read a dense layer with a norm."""

    name, prefix = "ModernBert", "model."
    heads = ("head.", "decoder.", "classifier.")
    # The head for tokens has no names of its own, so it is the last that is tried.
    head_names = {
        CLASSES: {"pooler.dense": "head.dense", "pooler.norm": "head.norm", "head": "classifier"},
        TAGS: TOKEN_HEAD,
        ANSWERS: TOKEN_HEAD,
        TOKENS: {"head.dense": "head.dense", "head.norm": "head.norm"},
    }
    embeddings = {
        "embedding": "embeddings.tok_embeddings",
        "norm": "embeddings.norm",
        "encoder.norm": "final_norm",
    }
    block = {
        "attention.output": "attn.Wo",
        "feed_forward.output_dense": "mlp.Wo",
        "feed_forward_residual.norm": "mlp_norm",
    }
    block_prefix = "layers.{}."
    copies = {"decoder.weight": "embeddings.tok_embeddings.weight"}
    poolings = ("first", "mean")
    stores_pooler = ()
    # The path in the model of each option of `config.json`.
    paths = {
        "vocab_size": "embedding.vocabulary_size",
        "hidden_size": "embedding.hidden_dim",
        "num_hidden_layers": "encoder.num_layers",
        "num_attention_heads": f"{FIRST}.attention.num_heads",
        "intermediate_size": f"{FIRST}.feed_forward.intermediate_dim",
        "mlp_dropout": f"{FIRST}.dropout",
        "norm_eps": "norm.epsilon",
        "norm_bias": "norm.use_bias",
        "attention_bias": f"{FIRST}.attention.use_bias",
        "mlp_bias": f"{FIRST}.feed_forward.use_bias",
    }

    def arguments(self, config):
        """Return the arguments of `models.modern_bert` for a configuration."""
        every = config.size("global_attn_every_n_layers", 3)
        types = layer_types(config, is_sliding=lambda index: index % every)
        biases = {
            "norm": "norm_bias",
            "attention": "attention_bias",
            "feed_forward": "mlp_bias",
            "head": "classifier_bias",
        }
        return {
            "vocabulary_size": config.size("vocab_size"),
            **read_sizes(config),
            "dropout": config.number("mlp_dropout", 0.0),
            "window": config.size("local_attention", 128),
            "global_layers": [index for index, kind in enumerate(types) if kind == FULL],
            "max_wavelength": self.wavelength(config, FULL, "global_rope_theta"),
            "local_wavelength": self.wavelength(config, SLIDING, "local_rope_theta"),
            "activation": config.activation("hidden_activation", "gelu"),
            "head_activation": config.activation("classifier_activation", "gelu"),
            "epsilon": config.number("norm_eps", 1e-5),
            "biases": [part for part, option in biases.items() if config.flag(option)],
            "pad_id": config.index("pad_token_id", 50283),
        }

    def wavelength(self, config, kind, old_key):
        """Return the base of the rotary positions of the layers of a kind; refuse a scaling."""
        config.require(rope_scaling=None)
        rotary = read_rotary(config, kind, old_key, WAVELENGTHS[kind])
        if rotary.scaling is not None:
            config.refuse("A rope_type of ModernBERT is not converted, only 'default'.")
        return rotary.max_wavelength

    def build_masked(self, arguments, overrides, head):
        return build(models.modern_bert, arguments, overrides)

    def build_pooler(self, head, config):
        epsilon, has_shift = config.number("norm_eps", 1e-5), config.flag("norm_bias")
        return layers.HeadTransform(
            config.size("hidden_size"),
            config.activation("classifier_activation", "gelu"),
            norms.LayerNorm(epsilon, use_bias=has_shift),
            use_bias=config.flag("classifier_bias"),
            name="pooler" if head == CLASSES else "transform",
        )

    def pooling_of_classes(self, config):
        pooling = config.get("classifier_pooling", "cls")
        if not isinstance(pooling, str) or pooling not in POOLINGS:
            config.refuse(f"The option classifier_pooling={pooling!r} is not converted.")
        return POOLINGS[pooling]

    def copy_blocks(self, checkpoint, model):
        super().copy_blocks(checkpoint, model)
        for index, block in enumerate(model.encoder.blocks):
            prefix = f"layers.{index}."
            if index:  # the norm of the embeddings takes the place of the first one
                copy_part(checkpoint, block, "attention_residual.norm", f"{prefix}attn_norm")
            copy_joined_heads(checkpoint, block.attention, f"{prefix}attn.Wqkv")
            inner = [block.feed_forward.gate, block.feed_forward.intermediate]
            copy_joined_denses(checkpoint, inner, f"{prefix}mlp.Wi")

    def copy_head(self, checkpoint, model):
        head = self.head_of(model)
        if head == CLASSES and model.pooler is None:
            raise ValueError(
                "A ModernBERT with classes must have its pooler, which no other layers equal. "
                "Received: model.pooler=None."
            )
        super().copy_head(checkpoint, model)
        if head == TOKENS and checkpoint.config.flag("decoder_bias", True):
            copy_table(checkpoint, model, {"head.bias": "decoder.bias"})
        elif head == TOKENS:
            checkpoint.transfer_zero(model.head.bias)

    def fits(self, model):
        """Return True for an encoder with rotary positions."""
        position = getattr(read_part(model, f"{FIRST}.attention"), "position", None)
        return isinstance(position, positions.Rotary)

    def language_options(self, model):
        blocks = model.encoder.blocks
        is_local = [isinstance(block.attention.pattern, patterns.Local) for block in blocks]
        types = [SLIDING if local else FULL for local in is_local]
        wavelengths, window = dict(WAVELENGTHS), 128
        for kind, block in zip(types, blocks, strict=True):
            wavelengths[kind] = float(block.attention.position.max_wavelength)
            if kind == SLIDING:
                window = 2 * (block.attention.pattern.window - 1)
        options = {
            **read_options(model, self.paths),
            "hidden_activation": activation_name(read_part(blocks[0], "feed_forward.activation")),
            "layer_types": types,
            "rope_parameters": {
                kind: {"rope_type": "default", "rope_theta": x} for kind, x in wavelengths.items()
            },
            "local_attention": window,
        }
        pooler = getattr(model, "pooler", None)
        transform = pooler or getattr(model.head, "transform", model.head)
        if isinstance(transform, (layers.HeadTransform, layers.MaskedTokenHead)):
            options["classifier_activation"] = activation_name(transform.activation)
            options["classifier_bias"] = transform.use_bias
        if pooler is not None:
            kinds = {pooling: kind for kind, pooling in POOLINGS.items()}
            options["classifier_pooling"] = kinds.get(model.pooling)
        return options
