"""Causal decoders in the manner of Llama: one builder and one table for their families."""

import dataclasses
from collections.abc import Callable

import keras

from keras_attn import depth, layers, models, norms, patterns, residuals
from keras_attn.compat.unallocated import initialize, without_values
from keras_attn.convert.hugging_face.last_token_classifier import HEAD
from keras_attn.convert.hugging_face.overrides import build
from keras_attn.convert.hugging_face.weights import (
    Fold,
    copy,
    copy_part,
    copy_projection,
    copy_table,
)
from keras_attn.ops.shapes import head_size
from keras_attn.patterns.per_layer import pattern_of

PRE_NORMS = {
    "attention_residual.norm": "input_layernorm",
    "feed_forward_residual.norm": "post_attention_layernorm",
}
SANDWICH_NORMS = {
    "attention_residual.norm": "input_layernorm",
    "attention_residual.output_norm": "post_attention_layernorm",
    "feed_forward_residual.norm": "pre_feedforward_layernorm",
    "feed_forward_residual.output_norm": "post_feedforward_layernorm",
}
FEED_FORWARD = {
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.intermediate": "mlp.up_proj",
    "feed_forward.output_dense": "mlp.down_proj",
}
PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}


@dataclasses.dataclass
class Decoder:
    """Options of a family of decoders, by default those of Llama.

    Args:
        position: function from a layer's index to its rotary position.
        window: function from a layer's index to the number of keys of a query, or None for all.
        biases: names of the projections with a bias.
        feed_forward_bias: bool. If True, the feed-forward layers have biases.
        activation: of the gate; by default that of `hidden_act`.
        norm_offset: float. `offset` of the norms.
        has_qk_norm: bool. If True, queries and keys have norms.
        is_sandwich: bool. If True, the outputs of sublayers have norms.
        is_scaled: bool. If True, embeddings are multiplied by the root of the width.
        score: function that makes the score of a layer.
        query_scale: function from the size of a head to the factor of the queries before the score.
        logits_cap: float. Bound of the logits; None for none.
        is_tied: bool. Value of `tie_word_embeddings` where the file has none.
    """

    position: Callable
    window: Callable = lambda index: None
    biases: tuple = ()
    feed_forward_bias: bool = False
    activation: Callable | None = None
    norm_offset: float = 0.0
    has_qk_norm: bool = False
    is_sandwich: bool = False
    is_scaled: bool = False
    score: Callable = lambda: "scaled_dot"
    query_scale: Callable = lambda size: None
    logits_cap: float | None = None
    is_tied: bool = False

    def pattern(self, index):
        """Return the pattern of a layer."""
        window = self.window(index)
        return "causal" if window is None else patterns.Local(window)


def convert_decoder(checkpoint, overrides, decoder):
    """Return a `CausalLanguageModel` with the weights of a checkpoint.

    Overrides are `pattern`, which may be a function of the layer's index, `dropout`, `pad_id` and
    `name`. By default id 0 is a token, and no id is padding.
    """
    config = checkpoint.config
    checkpoint.strip("model.")
    is_tied = config.flag("tie_word_embeddings", decoder.is_tied) or checkpoint.has(
        f"{HEAD}.weight"
    )
    is_tied = is_tied and checkpoint.is_tied("lm_head.weight", "embed_tokens.weight")
    if decoder.logits_cap is not None and not is_tied:
        config.refuse("A cap of logits is converted with tied embeddings only.")

    def build_model(
        pattern=decoder.pattern, dropout=0.0, pad_id=None, name=config.get("model_type")
    ):
        return build_decoder(config, decoder, is_tied, pattern, dropout, pad_id, name)

    with without_values() as variables:  # which would be drawn at random
        model = build(build_model, {}, overrides)
    copy_weights(checkpoint, model, decoder)
    initialize(variables)
    return model


def build_decoder(config, decoder, is_tied, pattern, dropout=0.0, pad_id=None, name=None):
    """Return a `CausalLanguageModel` with the sizes of a configuration."""
    width, num_heads = config.size("hidden_size"), config.size("num_attention_heads")
    vocabulary_size, intermediate_dim = config.size("vocab_size"), config.size("intermediate_size")
    given = config.get("head_dim")
    key_dim = head_size(width, num_heads) if given is None else config.size("head_dim")
    num_key_value_heads = config.size("num_key_value_heads", num_heads)
    activation = decoder.activation or config.activation("hidden_act", "silu")
    norm = norms.RMSNorm(config.number("rms_norm_eps", 1e-6), offset=decoder.norm_offset)
    residual = residuals.SandwichNorm if decoder.is_sandwich else residuals.PreNorm

    def block(index):
        return layers.TransformerBlock(
            layers.MultiHeadAttention(
                num_heads,
                key_dim,
                score=decoder.score(),
                pattern=pattern_of(pattern, index),
                position=decoder.position(index),
                qk_norm=norm if decoder.has_qk_norm else None,
                num_key_value_heads=num_key_value_heads,
                use_bias=bool(decoder.biases),
            ),
            layers.GatedFeedForward(intermediate_dim, activation, decoder.feed_forward_bias),
            residual=residual(norm=norm),
            dropout=dropout,
        )

    head = None
    if not is_tied:
        head = keras.layers.Dense(vocabulary_size, use_bias=False, dtype="float32", name="head")
    return models.CausalLanguageModel(
        embedding=layers.TokenEmbedding(
            *(vocabulary_size, width, decoder.is_scaled),
            pad_id=pad_id,
            logits_cap=decoder.logits_cap,
        ),
        depth=depth.Stack(block, config.size("num_hidden_layers"), name="depth"),
        head=head,
        name=name,
    )


def copy_weights(checkpoint, model, decoder):
    """Copy the tensors of a model, in either direction."""
    copy_part(checkpoint, model, "embedding", "embed_tokens")
    copy_part(checkpoint, model, "depth.norm", "norm")
    if model.head is not None:
        copy_part(checkpoint, model, "head", "lm_head")
    for index, block in enumerate(model.depth.blocks):
        _copy_block(checkpoint, block, decoder, f"layers.{index}.")


def _copy_block(checkpoint, block, decoder, prefix):
    attention = block.attention
    scale = decoder.query_scale(attention.key_dim)
    for projection, name in PROJECTIONS.items():
        copy_projection(
            *(checkpoint, attention, projection, f"{prefix}self_attn.{name}"),
            has_bias=projection in decoder.biases,
            # With a norm of queries the norm's gain takes the scale, which it would undo.
            scale=None if projection != "query" or decoder.has_qk_norm else scale,
        )
    if decoder.has_qk_norm:
        gain, offset = attention.qk_norm.scale, attention.qk_norm.offset
        scales = None if scale is None else (scale,)
        scaled = Fold([gain], tuple(gain.shape), scales=scales, offset=offset)
        checkpoint.transfer(f"{prefix}self_attn.q_norm.weight", scaled)
        copy(checkpoint, attention.key_norm.scale, f"{prefix}self_attn.k_norm.weight")
    copy_table(checkpoint, block, SANDWICH_NORMS if decoder.is_sandwich else PRE_NORMS, prefix)
    copy_table(checkpoint, block, FEED_FORWARD, prefix)
