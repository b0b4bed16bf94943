"""Encoders and decoders in the manner of BART: one builder and one table for their families."""

from keras_attn import depth, layers, models, norms, residuals
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.family import FIRST, SIDES, read_options, read_part
from keras_attn.convert.hugging_face.overrides import build
from keras_attn.convert.hugging_face.weights import Fold, copy_blocks, copy_part
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


def drop_copies(checkpoint):
    """Leave out stored copies of the token tables."""
    names = [*_tables(checkpoint.config)]
    copies = ["lm_head", *(f"{side}.embed_tokens" for side in SIDES)]
    for copy in copies:
        if copy not in names:
            checkpoint.drop_copy(f"{copy}.weight", f"{names[-1]}.weight")


def build_sides(
    config, overrides, pad_id, position, source_position=None, norm=None, has_bias=True
):
    """Return an `EncoderDecoder` with the sizes of a configuration.

    Overrides are `pattern`, which is that of the encoder, `dropout` and `name`. Without a bias the
    logits are products with the target's embedding.
    """
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
            position=position,
            encoder=stack("encoder", pattern, dropout),
            decoder=stack("decoder", "causal", dropout),
            dropout=dropout,
            source_position=source_position,
            head=layers.TokenHead(embeddings[-1]) if has_bias else None,
            target_embedding=embeddings[-1],
            norm=norm,
            start_id=config.index("decoder_start_token_id", pad_id),
            name=name,
        )

    return build(build_model, {}, overrides)


def copy_sides(checkpoint, model):
    """Copy all tensors except those of positions and the norms after them, in either direction."""
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


def side_options(model):
    """Return the options of `config.json` that the families share."""
    sides = {
        f"{side}_{option}": f"{side}.{path}"
        for side in SIDES
        for option, path in SIDE_OPTIONS.items()
    }
    return {
        **read_options(model, {**OPTIONS, **sides}),
        "activation_function": activation_name(
            read_part(model, f"{FIRST}.feed_forward.activation")
        ),
        "is_encoder_decoder": True,
    }


def _tables(config):
    """Return the sizes of the token tables by name: a shared one, or one of each side."""
    size = config.size("vocab_size")
    if config.flag("share_encoder_decoder_embeddings", True):  # an option of Marian
        return {"shared": size}
    sizes = size, config.size("decoder_vocab_size", size)
    return {f"{side}.embed_tokens": size for side, size in zip(SIDES, sizes, strict=True)}
