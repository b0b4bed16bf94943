"""Specification of a model for CTranslate2: its sizes and weights under CTranslate2's names."""

import keras
import numpy as np
from keras import ops

from keras_attn.depth import Stack
from keras_attn.export._ctranslate2.block_options import block_options, refuse, t5_bias
from keras_attn.layers import TokenEmbedding, TokenHead
from keras_attn.models import (
    CausalLanguageModel,
    Classifier,
    EncoderDecoder,
    MaskedLanguageModel,
)
from keras_attn.norms import LayerNorm, RMSNorm
from keras_attn.residuals import SandwichNorm
from keras_attn.scores import DotProduct


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
    """Return the layer after the first position of an encoder's output; None for none."""
    pooler = getattr(model, "pooler", None)
    if pooler is None:
        return None
    is_dense = type(pooler) is keras.layers.Dense and pooler.activation is keras.activations.tanh
    if not is_dense or model.pooling != "first":
        refuse(pooler, "a `Dense` layer with tanh after the first position as pooler")
    return pooler


def _options(name, stack, max_length):
    """Return the options of a stack, which are those of all its blocks, and its epsilon."""
    if type(stack) is not Stack:
        refuse(stack, "a `Stack`")
    found = [block_options(block, name == "decoder", max_length) for block in stack.blocks]
    for block, options in zip(stack.blocks, found, strict=True):
        if options != found[0]:
            refuse(block, "blocks with equal settings in all layers")
    return found[0]


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
