"""Encoders with decoders: BART and Marian, of one builder and one table."""

from keras_attn import depth, layers, models, norms, positions, residuals
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.family import (
    FIRST,
    SIDES,
    Family,
    build,
    read_options,
    read_part,
)
from keras_attn.convert.hugging_face.weights import (
    Fold,
    LastRows,
    copy_blocks,
    copy_part,
)
from keras_attn.ops.shapes import head_size
from keras_attn.patterns.per_layer import pattern_of

BLOCK = {
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.out_proj",
    "attention_residual.norm": "self_attn_layer_norm",
    "feed_forward.intermediate": "fc1",
    "feed_forward.output_dense": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}
CROSS_ATTENTION = {
    "cross_attention.query": "encoder_attn.q_proj",
    "cross_attention.key": "encoder_attn.k_proj",
    "cross_attention.value": "encoder_attn.v_proj",
    "cross_attention.output": "encoder_attn.out_proj",
    "cross_attention_residual.norm": "encoder_attn_layer_norm",
}
BIAS = "final_logits_bias"
# The path in the model of each option of `config.json`.
OPTIONS = {
    "vocab_size": "embedding.vocabulary_size",
    "d_model": "embedding.hidden_dim",
    "scale_embedding": "embedding.scaled",
    "dropout": "dropout",
    "attention_dropout": f"{FIRST}.attention.dropout",
}
SIDE_OPTIONS = {
    "layers": "num_layers",
    "attention_heads": "blocks.0.attention.num_heads",
    "ffn_dim": "blocks.0.feed_forward.intermediate_dim",
}


class Marian(Family):
    """Marian, the models of OPUS-MT; without the norm of embeddings that BART has."""

    prefix = "model."
    heads = (BIAS,)
    free = ("start_id",)  # changes the model only if it is the id of padding

    def convert(self, checkpoint, overrides):
        """Return an `EncoderDecoder` with the weights of a checkpoint.

        Targets start with the id of padding.
        """
        checkpoint.ignore("*.embed_positions.weight")  # sinusoids
        return self.read(checkpoint, overrides)

    def read(self, checkpoint, overrides):
        """Return the model with all tensors that the checkpoint has left."""
        checkpoint.strip(self.prefix)
        _drop_copies(checkpoint)
        model = self.build_sides(checkpoint.config, overrides)
        self.copy_weights(checkpoint, model)
        return model

    def parts(self, config):
        """Return the parts of an `EncoderDecoder` by which a family differs, and its `pad_id`."""
        config.require(
            normalize_before=False, add_final_layer_norm=False, normalize_embedding=False
        )
        pad_id = config.index("pad_token_id", None)
        return pad_id, {"position": positions.Sinusoidal(layout="concat")}

    def build_sides(self, config, overrides, has_bias=True):
        """Return an `EncoderDecoder` with the sizes of a configuration.

        Overrides are `pattern`, which is that of the encoder, `dropout` and `name`. Without a bias
        the logits are products with the target's embedding.
        """
        pad_id, parts = self.parts(config)
        width, is_scaled = config.size("d_model"), config.flag("scale_embedding")
        activation = config.activation("activation_function", "gelu")

        def stack(side, pattern, dropout):
            num_heads = config.size(f"{side}_attention_heads")

            def attention(pattern):
                return layers.MultiHeadAttention(
                    num_heads,
                    head_size(width, num_heads),
                    pattern=pattern,
                    dropout=config.number("attention_dropout", 0.0),
                )

            def block(index):
                return layers.TransformerBlock(
                    attention(pattern_of(pattern, index)),
                    layers.FeedForward(config.size(f"{side}_ffn_dim"), activation),
                    cross_attention=attention("dense") if side == "decoder" else None,
                    residual=residuals.PostNorm(norm=norms.LayerNorm(1e-5)),
                    dropout=dropout,
                )

            return depth.Stack(block, config.size(f"{side}_layers"), name=side)

        def build_model(
            pattern="dense",
            dropout=config.number("dropout", 0.1),
            name=config.get("model_type"),
        ):
            embeddings = [
                layers.TokenEmbedding(size, width, is_scaled, pad_id)
                for size in _tables(config).values()
            ]
            return models.EncoderDecoder(
                embedding=embeddings[0],
                encoder=stack("encoder", pattern, dropout),
                decoder=stack("decoder", "causal", dropout),
                dropout=dropout,
                head=layers.TokenHead(embeddings[-1]) if has_bias else None,
                target_embedding=embeddings[-1],
                start_id=config.index("decoder_start_token_id", pad_id),
                name=name,
                **parts,
            )

        return build(build_model, {}, overrides)

    def build(self, config, model):
        return self.build_sides(config, {}, has_bias=model.head is not None)

    def copy_weights(self, checkpoint, model):
        tables = _tables(checkpoint.config)
        for part, table in zip(("embedding", "target_embedding"), tables, strict=False):
            copy_part(checkpoint, model, part, table)
        shape = 1, model.target_embedding.vocabulary_size
        if model.head is None:
            checkpoint.store_zeros(BIAS, shape)
        else:
            checkpoint.transfer(BIAS, Fold([model.head.bias], shape))
        for side in SIDES:
            copy_blocks(checkpoint, getattr(model, side).blocks, BLOCK, f"{side}.layers.{{}}.")
        copy_blocks(checkpoint, model.decoder.blocks, CROSS_ATTENTION, "decoder.layers.{}.")

    def options(self, model):
        return {
            **_side_options(model),
            "share_encoder_decoder_embeddings": model.embedding is model.target_embedding,
            "decoder_vocab_size": model.target_embedding.vocabulary_size,
            "architectures": ["MarianMTModel"],
        }


class Bart(Marian):
    """BART: Marian with learned positions, and a norm after them."""

    first_row = 2  # of the tables of positions, that of position 0

    def convert(self, checkpoint, overrides):
        """Return an `EncoderDecoder` with the weights of a checkpoint."""
        return self.read(checkpoint, overrides)

    def parts(self, config):
        config.require(normalize_before=False, add_final_layer_norm=False, normalize_embedding=True)
        length = config.size("max_position_embeddings", 1024)
        return config.index("pad_token_id", 1), {
            "position": positions.Learned(length),
            "source_position": positions.Learned(length),
            "norm": norms.LayerNorm(1e-5),
        }

    def copy_weights(self, checkpoint, model):
        super().copy_weights(checkpoint, model)
        parts = (model.source_position, model.norm), (model.position, model.target_norm)
        for side, (position, norm) in zip(SIDES, parts, strict=True):
            rows = LastRows(position.table, self.first_row)
            checkpoint.transfer(f"{side}.embed_positions.weight", rows)
            copy_part(checkpoint, norm, "", f"{side}.layernorm_embedding")

    def options(self, model):
        return {
            **_side_options(model),
            "max_position_embeddings": read_part(model, "position.max_length"),
            "architectures": ["BartForConditionalGeneration"],
        }


def _side_options(model):
    """Return the options of `config.json` that the families share."""
    sides = {
        f"{side}_{option}": f"{side}.{path}"
        for side in SIDES
        for option, path in SIDE_OPTIONS.items()
    }
    activation = activation_name(read_part(model, f"{FIRST}.feed_forward.activation"))
    return {
        **read_options(model, {**OPTIONS, **sides}),
        "activation_function": activation,
        "is_encoder_decoder": True,
    }


def _drop_copies(checkpoint):
    """Leave out stored copies of the token tables."""
    names = [*_tables(checkpoint.config)]
    copies = ["lm_head", *(f"{side}.embed_tokens" for side in SIDES)]
    for copy in copies:
        if copy not in names:
            checkpoint.drop_copy(f"{copy}.weight", f"{names[-1]}.weight")


def _tables(config):
    """Return the sizes of the token tables by name: a shared one, or one of each side."""
    size = config.size("vocab_size")
    if config.flag("share_encoder_decoder_embeddings", True):  # an option of Marian
        return {"shared": size}
    sizes = size, config.size("decoder_vocab_size", size)
    return {f"{side}.embed_tokens": size for side, size in zip(SIDES, sizes, strict=True)}
