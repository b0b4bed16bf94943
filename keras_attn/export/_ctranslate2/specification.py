"""Specification of a model for CTranslate2: its options and weights under CTranslate2's names."""

import keras
import numpy as np
from keras import ops

from keras_attn.depth import Stack
from keras_attn.feed_forward import GatedFeedForward
from keras_attn.layers import (
    FeedForward,
    MultiHeadAttention,
    TokenEmbedding,
    TokenHead,
    TransformerBlock,
)
from keras_attn.models import (
    CausalLanguageModel,
    Classifier,
    EncoderDecoder,
    MaskedLanguageModel,
)
from keras_attn.norms import LayerNorm, RMSNorm
from keras_attn.ops.activations import gelu_sigmoid, gelu_tanh
from keras_attn.patterns import Causal, Dense, Local
from keras_attn.positions import Interpolation, Rotary
from keras_attn.residuals import PostNorm, PreNorm, SandwichNorm
from keras_attn.scores import DotProduct, Sum, T5Bias


def specification(model, max_length):
    """Return the model and its weights as one of `ctranslate2.specs`, without a vocabulary."""
    from ctranslate2 import specs

    stacks = stacks_of(model)
    kinds = {"encoder": specs.TransformerEncoderSpec, "decoder": specs.TransformerDecoderSpec}
    parts, epsilons = {}, set()
    for name, stack in stacks.items():
        options, epsilon = _options(name, stack, max_length)
        epsilons.add(epsilon)
        options["activation"] = specs.Activation[options["activation"]]
        if "rotary_dim" in options:
            options["rotary_scaling_type"] = specs.RotaryScalingType.Linear
        if name == "decoder":
            options["with_encoder_attention"] = len(stacks) == 2
        norm = getattr(model, "norm", None)
        if norm is not None:
            if type(norm) is not LayerNorm or options["rms_norm"]:
                refuse(norm, "a `LayerNorm` after positions, as those of the blocks")
            epsilons.add(norm.epsilon)
            options["layernorm_embedding"] = True
        if getattr(model, "segment", None) is not None:
            options["num_source_embeddings"] = 2
            options["embeddings_merge"] = specs.EmbeddingsMerge.ADD
        parts[name] = kinds[name](stack.num_layers, **options)
        _fill_stack(parts[name], model, stack, max_length)
    if len(epsilons) > 1:
        refuse(sorted(epsilons), "one epsilon of all norms")
    if "decoder" not in stacks:
        pooler = _pooler(model)
        spec = specs.TransformerEncoderModelSpec(parts["encoder"], pooler is not None)
        if pooler is not None:
            _fill_linear(spec.pooler_dense, pooler)
    else:
        _fill_head(parts["decoder"], model)
        if len(stacks) == 2:
            spec = specs.TransformerSpec(parts["encoder"], parts["decoder"])
            spec.config.add_source_eos = True
        else:
            spec = specs.TransformerDecoderModelSpec(parts["decoder"])
    (spec.config.layer_norm_epsilon,) = epsilons
    return spec


def stacks_of(model):
    """Return the encoder and the decoder of a model by name, or the one that it has."""
    if isinstance(model, CausalLanguageModel) and model.memory is None:
        return {"decoder": model.depth}
    if isinstance(model, EncoderDecoder):
        return {"encoder": model.encoder, "decoder": model.decoder}
    is_text = isinstance(model, Classifier) and model.image_shape is None
    if is_text and model.num_classes is not None:
        refuse(model, "the features of a `Classifier` without classes")
    if is_text or isinstance(model, MaskedLanguageModel):
        return {"encoder": model.encoder}
    kinds = "models of text without a memory, with an encoder, a decoder or both"
    refuse(model, kinds)


def _pooler(model):
    """Return the layer after the first position of an encoder's output; None for none.

    Layers of a sentence vector follow the pooling, which is the caller's.
    """
    pooler = getattr(model, "pooler", None)
    if pooler is None or isinstance(pooler, keras.Sequential):
        return None
    is_dense = type(pooler) is keras.layers.Dense and pooler.activation is keras.activations.tanh
    if not is_dense or model.pooling != "first":
        refuse(pooler, "a `Dense` layer with tanh after the first position as pooler")
    return pooler


def _options(name, stack, max_length):
    """Return the options of a stack, which are those of all its blocks, and its epsilon."""
    if type(stack) is not Stack:
        refuse(stack, "a `Stack`")
    settings = [block_options(block, name == "decoder", max_length) for block in stack.blocks]
    for block, options in zip(stack.blocks, settings, strict=True):
        if options != settings[0]:
            refuse(block, "blocks with equal settings in all layers")
    return settings[0]


def _fill_stack(spec, model, stack, max_length):
    embedding = _embedding(model, stack)
    table = spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings
    table.weight = _array(embedding.table)
    segment = getattr(model, "segment", None)
    if segment is not None:
        if embedding.scaled:
            refuse(embedding, "segments beside tokens with `scaled=False`")
        spec.embeddings[1].weight = _array(segment.table)
    spec.scale_embeddings = bool(embedding.scaled)
    if getattr(model, "norm", None) is not None:
        _fill_norm(spec.layernorm_embedding, _norm(model, stack))
    position = model.position
    if stack is not getattr(model, "decoder", stack):
        position = model.source_position or position
    if hasattr(spec, "position_encodings"):
        positions = ops.zeros((1, max_length, embedding.hidden_dim))
        if position is not None:
            positions = position(positions)
        spec.position_encodings.encodings = _array(positions[0])
    elif position is not None:
        refuse(position, "positions of embeddings without those of attention")
    if stack.norm is not None:
        _fill_norm(spec.layer_norm, stack.norm)
    for layer, block in zip(spec.layer, stack.blocks, strict=True):
        _fill_block(layer, block)


def _embedding(model, stack):
    is_target = isinstance(model, EncoderDecoder) and stack is model.decoder
    embedding = model.target_embedding if is_target else model.embedding
    if type(embedding) is not TokenEmbedding:
        refuse(embedding, "a `TokenEmbedding`")
    return embedding


def _norm(model, stack):
    return model.target_norm if stack is getattr(model, "decoder", None) else model.norm


def _fill_block(spec, block):
    attention, feed_forward = block.attention, block.feed_forward
    _fill_attention(spec.self_attention, attention, ("query key value", "output"))
    if block.cross_attention is not None:
        _fill_attention(spec.attention, block.cross_attention, ("query", "key value", "output"))
        _fill_norm(spec.attention.layer_norm, block.cross_attention_residual.norm)
    _fill_linear(spec.ffn.linear_0, getattr(feed_forward, feed_forward.INPUTS[0]))
    if len(feed_forward.INPUTS) == 2:
        _fill_linear(spec.ffn.linear_0_noact, feed_forward.intermediate)
    _fill_linear(spec.ffn.linear_1, feed_forward.output_dense)
    first, last = block.attention_residual, block.feed_forward_residual
    if type(first) is SandwichNorm:
        _fill_norm(spec.input_layer_norm, first.norm)
        _fill_norm(spec.post_attention_layer_norm, first.output_norm)
        _fill_norm(spec.pre_feedforward_layer_norm, last.norm)
        _fill_norm(spec.post_feedforward_layer_norm, last.output_norm)
    else:
        _fill_norm(spec.self_attention.layer_norm, first.norm)
        _fill_norm(spec.ffn.layer_norm, last.norm)


def _fill_attention(spec, layer, parts):
    """Fill an attention's linear layers; projections of the same input are concatenated."""
    for linear, names in zip(spec.linear, parts, strict=True):
        kernels, biases = [], []
        for part in names.split():
            kernel = _array(layer.kernel_of(part))
            inputs = 2 if part == "output" else 1  # kernel: (heads, size, D), or (D, heads, size)
            kernels.append(kernel.reshape(np.prod(kernel.shape[:inputs]), -1).T)
            if layer.use_bias:
                biases.append(_array(layer.kernel_of(part, "bias")).ravel())
        linear.weight = np.concatenate(kernels)
        if layer.use_bias:
            linear.bias = np.concatenate(biases)
    if layer.qk_norm is not None:
        _fill_norm(spec.q_norm, layer.qk_norm)
        _fill_norm(spec.k_norm, layer.key_norm)
    bias = t5_bias(layer.score)
    score = layer.score if bias is None else layer.score.terms[0]
    if type(score) is DotProduct and not score.scaled:
        spec.queries_scale = np.float32(1)
    if bias is not None:
        spec.relative_attention_bias = _array(bias.table)
        spec.relative_attention_max_distance = np.int32(bias.max_distance)
    if layer.position is not None:
        _fill_rotary(spec, layer.position)


def _fill_rotary(spec, position):
    """Fill the numbers of rotary positions, in which layers may differ."""
    factor = 1.0 if position.scaling is None else position.scaling.factor
    spec.rotary_base = np.float32(position.max_wavelength)
    spec.rotary_scaling_factor = np.float32(factor)


def _fill_head(spec, model):
    head, embedding = model.head, _embedding(model, getattr(model, "decoder", None))
    if type(head) is keras.layers.Dense:
        _fill_linear(spec.projection, head)
        return
    if head is not None:
        if type(head) is not TokenHead:
            refuse(head, "a `Dense` layer or a `TokenHead` of logits")
        embedding, spec.projection.bias = head.embedding, _array(head.bias)
    spec.projection.weight = _array(embedding.table)
    if embedding.logits_cap is not None:
        spec.final_logit_softcapping = np.float32(embedding.logits_cap)


def _fill_linear(spec, dense):
    spec.weight = np.ascontiguousarray(_array(dense.kernel).T)
    if dense.use_bias:
        spec.bias = _array(dense.bias)


def _fill_norm(spec, norm):
    if type(norm) is RMSNorm:
        spec.gamma = _array(norm.scale) + np.float32(norm.offset)
    else:
        spec.gamma = _array(norm.gamma)
        spec.beta = np.zeros_like(spec.gamma) if norm.beta is None else _array(norm.beta)


def _array(weight):
    return ops.convert_to_numpy(weight).astype("float32")


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
