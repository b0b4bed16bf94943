"""BART, and the encoders and decoders that share its names."""

from keras_attn import depth, layers, models, norms, positions, residuals
from keras_attn.convert.hugging_face.family import Family
from keras_attn.convert.hugging_face.overrides import build
from keras_attn.convert.hugging_face.weights import copy_blocks, copy_part
from keras_attn.ops.shapes import head_size

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
SIDES = ("encoder", "decoder")
FIRST = 2  # rows of the tables of positions before that of position 0


def convert(checkpoint, overrides):
    """Return an `EncoderDecoder` with the weights of a checkpoint of BART."""
    config = checkpoint.config
    config.require(normalize_before=False, add_final_layer_norm=False, normalize_embedding=True)
    length = config.size("max_position_embeddings", 1024)
    position, source_position = positions.Learned(length), positions.Learned(length)
    model = convert_sides(
        *(checkpoint, overrides, config.index("pad_token_id", 1), position),
        source_position=source_position,
        norm=norms.LayerNorm(1e-5),
    )
    parts = (source_position, model.norm), (position, model.target_norm)
    for side, (positions_of_side, norm) in zip(SIDES, parts, strict=True):
        table = positions_of_side.table
        rows = checkpoint.take(f"{side}.embed_positions.weight", (length + FIRST, table.shape[1]))
        table.assign(rows[FIRST:])
        copy_part(checkpoint, norm, "", f"{side}.layernorm_embedding")
    return model


def convert_sides(checkpoint, overrides, pad_id, position, source_position=None, norm=None):
    """Return an `EncoderDecoder` with the weights of all but positions and their norms.

    Overrides are `pattern`, of the encoder, `dropout` and `name`.
    """
    config = checkpoint.config
    checkpoint.strip("model.")
    width, is_scaled = config.size("d_model"), config.flag("scale_embedding")
    tables = _tables(checkpoint)
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
                attention(pattern(index) if callable(pattern) else pattern),
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
            layers.TokenEmbedding(size, width, is_scaled, pad_id) for size in tables.values()
        ]
        return models.EncoderDecoder(
            embedding=embeddings[0],
            position=position,
            encoder=stack("encoder", pattern, dropout),
            decoder=stack("decoder", "causal", dropout),
            dropout=dropout,
            source_position=source_position,
            head=layers.TokenHead(embeddings[-1]),
            norm=norm,
            start_id=config.index("decoder_start_token_id", pad_id),
            name=name,
        )

    model = build(build_model, {}, overrides)
    for part, table in zip(("embedding", "target_embedding"), tables, strict=False):
        copy_part(checkpoint, model, part, table)
    bias = model.head.bias
    bias.assign(checkpoint.take("final_logits_bias", (1, *bias.shape))[0])
    for side in SIDES:
        copy_blocks(checkpoint, getattr(model, side).blocks, BLOCK, f"{side}.layers.{{}}.")
    copy_blocks(checkpoint, model.decoder.blocks, CROSS_ATTENTION, "decoder.layers.{}.")
    return model


def _tables(checkpoint):
    """Return the sizes of the token tables of source and target by name, or of the one of both."""
    config, sides = checkpoint.config, [f"{side}.embed_tokens" for side in SIDES]
    size = config.size("vocab_size")
    if config.flag("share_encoder_decoder_embeddings", True):  # an option of Marian
        tables, copies = {"shared": size}, ["lm_head", *sides]
    else:
        tables = dict(zip(sides, (size, config.size("decoder_vocab_size", size)), strict=True))
        copies = ["lm_head"]
    for copy in copies:
        checkpoint.drop_copy(f"{copy}.weight", f"{[*tables][-1]}.weight")
    return tables


FAMILY = Family(convert)
