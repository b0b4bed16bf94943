"""Options of CTranslate2's specification for the blocks that it computes."""

import keras

from keras_attn.feed_forward import GatedFeedForward
from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
from keras_attn.norms import LayerNorm, RMSNorm
from keras_attn.ops.activations import gelu_sigmoid, gelu_tanh
from keras_attn.patterns import Causal, Dense, Local
from keras_attn.positions import Interpolation, Rotary
from keras_attn.residuals import PostNorm, PreNorm, SandwichNorm
from keras_attn.scores import DotProduct, Sum, T5Bias

_ACTIVATIONS = {
    keras.activations.relu: "RELU",
    keras.activations.gelu: "GELU",
    keras.activations.silu: "SWISH",
    gelu_tanh: "GELUTanh",
    gelu_sigmoid: "GELUSigmoid",
}


def refuse(part, supported):
    """Raise the `ValueError` of a part that CTranslate2 lacks."""
    raise ValueError(f"CTranslate2 lacks this part; it supports {supported}. Received: {part!r}.")


def block_options(block, is_causal, max_length):
    """Return the options of CTranslate2's stack of such blocks.

    Args:
        block: a `TransformerBlock`.
        is_causal: bool. True for a decoder's block.
        max_length: int. Most positions, which a window must hold.

    Returns:
        dict, and the epsilon of all norms.

    Raises:
        ValueError: if CTranslate2 lacks a part of the block.
    """
    if type(block) is not TransformerBlock:
        refuse(block, "a `TransformerBlock`")
    residual, attention, feed_forward = block.residual, block.attention, block.feed_forward
    if type(residual) not in (PostNorm, PreNorm, SandwichNorm):
        refuse(residual, "`PostNorm`, `PreNorm` or `SandwichNorm`")
    if type(residual.norm) not in (LayerNorm, RMSNorm):
        refuse(residual, "a `LayerNorm` or an `RMSNorm`")
    if type(residual) is SandwichNorm and block.cross_attention is not None:
        refuse(residual, "cross-attention with `PostNorm` or `PreNorm`")
    kinds = FeedForward, GatedFeedForward
    if type(feed_forward) not in kinds or feed_forward.activation not in _ACTIVATIONS:
        refuse(feed_forward, "feed-forward layers, with a gate or not, of relu, gelu or silu")
    _check_attention(attention)
    _check_pattern(attention.pattern, is_causal, max_length)
    if block.cross_attention is not None:
        _check_cross_attention(block.cross_attention, attention)
    options = {
        "num_heads": attention.num_heads,
        "pre_norm": type(residual) is not PostNorm,
        "pre_post_layer_norm": type(residual) is SandwichNorm,
        "rms_norm": type(residual.norm) is RMSNorm,
        "activation": _ACTIVATIONS[feed_forward.activation],
        "ffn_glu": type(feed_forward) is GatedFeedForward,
        "head_dim": attention.key_dim,
        **_position_options(attention, is_causal),
    }
    if attention.num_key_value_heads != attention.num_heads:
        options["num_heads_kv"] = attention.num_key_value_heads
    epsilon = residual.norm.epsilon
    if attention.qk_norm is not None:
        if type(attention.qk_norm) is not RMSNorm or attention.qk_norm_axis != "head":
            refuse(attention.qk_norm, "an `RMSNorm` of each head's queries and keys")
        if attention.qk_norm.epsilon != epsilon:
            refuse(attention.qk_norm, f"norms of equal epsilon, here {epsilon}")
        options["qk_norm"] = True
    return options, epsilon


def t5_bias(score):
    """Return the `T5Bias` of a score that is a dot product and such a bias, or None."""
    is_sum = type(score) is Sum and [type(term) for term in score.terms] == [DotProduct, T5Bias]
    return score.terms[1] if is_sum else None


def _check_attention(layer):
    is_plain = (
        type(layer) is MultiHeadAttention
        and (type(layer.score) is DotProduct or t5_bias(layer.score) is not None)
        and layer.key_dim == layer.value_dim
        and not (layer.sinks or layer.use_gate)
    )
    if not is_plain:
        refuse(layer, "a `MultiHeadAttention` with dot products, without sinks and gate")


def _check_cross_attention(layer, attention):
    _check_attention(layer)
    if t5_bias(layer.score) is not None:
        refuse(layer, "cross-attention without a bias")
    for name in ("num_heads", "key_dim", "num_key_value_heads"):
        if getattr(layer, name) != getattr(attention, name):
            refuse(layer, f"cross-attention with the {name} of self-attention")
    if layer.position is not None or layer.qk_norm is not None:
        refuse(layer, "cross-attention without positions and norms")
    if type(layer.pattern) is not Dense:
        refuse(layer.pattern, "cross-attention to all keys")


def _check_pattern(pattern, is_causal, max_length):
    """Refuse a pattern, unless each text of `max_length` has all keys or all earlier keys.

    CTranslate2 gives other tokens for prompts longer than a window.
    """
    if not is_causal:
        if type(pattern) is not Dense:
            refuse(pattern, "`Dense` in an encoder")
    elif type(pattern) is Local and pattern.causal:
        if pattern.window < max_length:
            refuse(pattern, f"windows of at least max_length={max_length} keys")
    elif type(pattern) is not Causal:
        refuse(pattern, "`Causal`, or a `Local` window of max_length keys")


def _position_options(layer, is_causal):
    position, bias = layer.position, t5_bias(layer.score)
    if bias is not None:
        if position is not None or bias.bidirectional == is_causal:
            refuse(layer, "a `T5Bias` without rotary positions, `bidirectional` in encoders only")
        return {"relative_attention_bias": True}
    if position is None:
        return {}
    is_linear = type(position) is Rotary and type(position.scaling) is Interpolation
    if type(position) is not Rotary or not (is_linear or position.scaling is None):
        refuse(position, "`Rotary` positions, with `Interpolation` or without scaling")
    return {
        "rotary_dim": round(layer.key_dim * position.fraction),
        "rotary_interleave": position.layout == "interleaved",
    }
