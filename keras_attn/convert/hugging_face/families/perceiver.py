"""Perceiver IO, whose latents read tokens and are read by positions."""

from keras_attn import depth, layers, models, norms, positions, residuals
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.families.family import Family, build, read_options
from keras_attn.convert.hugging_face.heads import require_tokens
from keras_attn.convert.hugging_face.weights import copy_blocks, copy_table
from keras_attn.ops.shapes import head_size

# In a block of the Perceiver's latents, and in its blocks of cross-attention.
PERCEIVER_BLOCK = {
    "attention_residual.norm": "attention.self.layernorm1",
    "attention.query": "attention.self.query",
    "attention.key": "attention.self.key",
    "attention.value": "attention.self.value",
    "attention.output": "attention.output.dense",
    "feed_forward_residual.norm": "layernorm",
    "feed_forward.intermediate": "mlp.dense1",
    "feed_forward.output_dense": "mlp.dense2",
}


class Perceiver(Family):
    """Perceiver IO for masked tokens."""

    model_classes = models.MaskedLanguageModel, models.Classifier
    prefix = "perceiver."
    heads = ("embedding_decoder",)
    pad_id = 0
    WRITTEN = 8, 256  # heads and widths of the keys that write positions, in all checkpoints
    embeddings = {
        "embedding": "input_preprocessor.embeddings",
        "position": "input_preprocessor.position_embeddings",
        "encoder.latents": "embeddings.latents",
        "encoder.read.context_norm": "encoder.cross_attention.attention.self.layernorm2",
        "encoder.depth.norm": "decoder.decoding_cross_attention.attention.self.layernorm2",
        "encoder.position.table": "decoder.output_position_encodings.position_embeddings",
        "head.bias": "embedding_decoder.bias",
    }
    # The path in the model of each option of `config.json`.
    paths = {
        "vocab_size": "embedding.vocabulary_size",
        "d_model": "embedding.hidden_dim",
        "num_latents": "encoder.num_latents",
        "d_latents": "encoder.latent_dim",
        "num_self_attends_per_block": "encoder.depth.num_layers",
        "num_self_attention_heads": "encoder.depth.blocks.0.attention.num_heads",
        "num_cross_attention_heads": "encoder.read.attention.num_heads",
        "max_position_embeddings": "position.max_length",
        "attention_probs_dropout_prob": "encoder.read.attention.dropout",
        "use_query_residual": "encoder.read.adds_query",
    }

    def convert(self, checkpoint, overrides):
        """Return a `MaskedLanguageModel` with the weights of a checkpoint."""
        require_tokens(checkpoint.config, "Perceiver")
        checkpoint.strip(self.prefix)
        model = self.read_model(checkpoint.config, overrides)
        self.copy_weights(checkpoint, model)
        return model

    def read_model(self, config, overrides):
        """Return the model of a configuration."""
        config.require(num_blocks=1)
        width, latent_dim = config.size("d_model"), config.size("d_latents")
        length = config.size("max_position_embeddings", 2048)
        size, pad_id = config.size("vocab_size"), config.index("pad_token_id", self.pad_id)
        activation = config.activation("hidden_act", "gelu")
        read_keys = config.size("qk_channels", width if self._reads_keys(config) else latent_dim)
        keys = config.size("qk_channels", latent_dim)
        kinds = {
            "self": (keys, config.size("v_channels", keys)),
            "cross": (read_keys, config.size("v_channels", read_keys)),
        }
        residual = residuals.PreNorm(norm=norms.LayerNorm(1e-5))

        def build_model(
            dropout=config.number("attention_probs_dropout_prob", 0.1),
            name=config.get("model_type"),
        ):
            def attention(num_heads, keys, values):
                sizes = (head_size(width, num_heads) for width in (keys, values))
                return layers.MultiHeadAttention(num_heads, *sizes, dropout=dropout)

            def parts(kind):
                """Return the attention of latents to one kind of keys, and a feed-forward layer."""
                num_heads = config.size(f"num_{kind}_attention_heads", 8)
                factor = config.size(f"{kind}_attention_widening_factor", 1)
                feed_forward = layers.FeedForward(factor * latent_dim, activation)
                return attention(num_heads, *kinds[kind]), feed_forward

            def block(index):
                return layers.TransformerBlock(*parts("self"), residual=residual)

            embedding = layers.TokenEmbedding(size, width, scaled=False, pad_id=pad_id)
            write = attention(*self.WRITTEN, width), layers.FeedForward(width, activation)
            # The stack ends with the norm of what is written.
            options = {"residual": residual, "adds_query": False, "normalizes_context": False}
            return models.MaskedLanguageModel(
                embedding=embedding,
                position=positions.Learned(length),
                segment=None,
                norm=None,
                encoder=depth.Latents(
                    depth.Stack(block, config.size("num_self_attends_per_block", 26)),
                    read=layers.CrossAttentionBlock(
                        *parts("cross"),
                        residual=residual,
                        adds_query=config.flag("use_query_residual", True),
                    ),
                    write=layers.CrossAttentionBlock(*write, **options),
                    num_latents=config.size("num_latents"),
                    latent_dim=latent_dim,
                    position=positions.Learned(length),
                    name="encoder",
                ),
                head=layers.TokenHead(embedding),
                name=name,
            )

        return build(build_model, {}, overrides)

    def _reads_keys(self, config):
        """Return True if queries of the tokens are as wide as the tokens, not as the latents."""
        kind = config.get("cross_attention_shape_for_attention", "kv")
        if kind not in ("kv", "q"):
            config.require(cross_attention_shape_for_attention="kv")
        return kind == "kv"

    def fits(self, model):
        return isinstance(model.encoder, depth.Latents)

    def build(self, config, model):
        return self.read_model(config, {})

    def copy_weights(self, checkpoint, model):
        latents = model.encoder
        copy_table(checkpoint, model, self.embeddings)
        for part, name in (
            (latents.read, "encoder.cross_attention."),
            (latents.write, "decoder.decoding_cross_attention."),
        ):
            copy_table(checkpoint, part, PERCEIVER_BLOCK, name)
        copy_blocks(checkpoint, latents.depth.blocks, PERCEIVER_BLOCK, "encoder.self_attends.{}.")

    def options(self, model):
        options = read_options(model, self.paths)
        kinds = {"self": model.encoder.depth.blocks[0], "cross": model.encoder.read}
        for kind, block in kinds.items():
            factor = block.feed_forward.intermediate_dim // model.encoder.latent_dim
            options[f"{kind}_attention_widening_factor"] = factor
        for option, name in (("qk_channels", "key_dim"), ("v_channels", "value_dim")):
            widths = {
                block.attention.num_heads * getattr(block.attention, name)
                for block in kinds.values()
            }
            options[option] = widths.pop() if len(widths) == 1 else None  # those of the inputs
        return {
            **options,
            "hidden_act": activation_name(model.encoder.read.feed_forward.activation),
            "architectures": ["PerceiverForMaskedLM"],
        }
