"""T5 1.0 and 1.1, and FLAN-T5."""

import math

import numpy as np

from keras_attn import models
from keras_attn.convert.hugging_face.family import Family
from keras_attn.convert.hugging_face.overrides import build
from keras_attn.convert.hugging_face.weights import copy_part, copy_table

SELF_ATTENTION = {
    "attention.query": "layer.0.SelfAttention.q",
    "attention.key": "layer.0.SelfAttention.k",
    "attention.value": "layer.0.SelfAttention.v",
    "attention.output": "layer.0.SelfAttention.o",
    "attention_residual.norm": "layer.0.layer_norm",
}
CROSS_ATTENTION = {
    "cross_attention.query": "layer.1.EncDecAttention.q",
    "cross_attention.key": "layer.1.EncDecAttention.k",
    "cross_attention.value": "layer.1.EncDecAttention.v",
    "cross_attention.output": "layer.1.EncDecAttention.o",
    "cross_attention_residual.norm": "layer.1.layer_norm",
}
FEED_FORWARD = {"feed_forward.intermediate": "wi", "feed_forward.output_dense": "wo"}
GATED = {
    "feed_forward.gate": "wi_0",
    "feed_forward.intermediate": "wi_1",
    "feed_forward.output_dense": "wo",
}
SHARED = "shared.weight"
KINDS = {"relu": False, "gated-gelu": True}


def convert(checkpoint, overrides):
    """Return an `EncoderDecoder` with the weights of a checkpoint.

    Each layer gets a copy of the table of distances, which T5 shares: training unties them.
    """
    config = checkpoint.config
    num_layers, width = config.size("num_layers"), config.size("d_model")
    config.require(layer_norm_epsilon=1e-6, num_decoder_layers=num_layers)
    kind = config.get("feed_forward_proj", "relu")
    if kind not in KINDS:
        config.refuse(f"The option feed_forward_proj={kind!r} is not converted.")
    for side in ("encoder", "decoder"):
        checkpoint.drop_copy(f"{side}.embed_tokens.weight", SHARED)
    checkpoint.ignore("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight")
    is_tied = checkpoint.is_tied("lm_head.weight", SHARED)
    arguments = {
        "vocabulary_size": config.size("vocab_size"),
        "num_layers": num_layers,
        "num_heads": config.size("num_heads"),
        "hidden_dim": width,
        "intermediate_dim": config.size("d_ff"),
        "dropout": config.number("dropout_rate", 0.1),
        "key_dim": config.size("d_kv"),
        "num_buckets": config.size("relative_attention_num_buckets", 32),
        "max_distance": config.size("relative_attention_max_distance", 128),
        "gated": KINDS[kind],
        "tied": is_tied,
        "pad_id": config.index("pad_token_id", 0),
        "start_id": config.index("decoder_start_token_id", 0),
    }
    model = build(models.t5, arguments, overrides)
    table = model.embedding.table
    # Our embeddings are the table's rows times the root of the width, and our logits products with
    # the table: those of a tied T5.
    table.assign(checkpoint.take(SHARED, table.shape) / np.float32(math.sqrt(width)))
    if not is_tied:
        copy_part(checkpoint, model, "head", "lm_head")
    for side in ("encoder", "decoder"):
        _copy_side(checkpoint, getattr(model, side), side, GATED if KINDS[kind] else FEED_FORWARD)
    is_scaled = config.flag("scale_decoder_outputs", config.flag("tie_word_embeddings", True))
    if is_scaled != is_tied:
        scale = model.decoder.norm.scale
        scale.assign(scale.numpy() * math.sqrt(width) ** (1 if is_tied else -1))
    return model


def _copy_side(checkpoint, stack, side, feed_forward):
    copy_part(checkpoint, stack, "norm", f"{side}.final_layer_norm")
    biases = [block.attention.score.terms[-1].table for block in stack.blocks]
    name = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    table = checkpoint.take(name, biases[0].shape)
    for index, (block, bias) in enumerate(zip(stack.blocks, biases, strict=True)):
        bias.assign(table)
        prefix = f"{side}.block.{index}."
        copy_table(checkpoint, block, SELF_ATTENTION, prefix)
        if side == "decoder":
            copy_table(checkpoint, block, CROSS_ATTENTION, prefix)
        last = f"{prefix}layer.{2 if side == 'decoder' else 1}."
        copy_table(checkpoint, block, feed_forward, f"{last}DenseReluDense.")
        copy_part(checkpoint, block, "feed_forward_residual.norm", f"{last}layer_norm")


FAMILY = Family(convert)
