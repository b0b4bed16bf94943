"""Specification of a model for CTranslate2: its sizes and weights under CTranslate2's names."""

import keras
import numpy as np
from keras import ops

from keras_attn.depth import Stack
from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
from keras_attn.models import CausalLanguageModel, EncoderDecoder
from keras_attn.norms import LayerNorm
from keras_attn.ops.activations import gelu_sigmoid, gelu_tanh
from keras_attn.patterns import Causal, Dense
from keras_attn.residuals import PostNorm, PreNorm
from keras_attn.scores import DotProduct

_ACTIVATIONS = {
    keras.activations.relu: "RELU",
    keras.activations.gelu: "GELU",
    keras.activations.silu: "SWISH",
    gelu_tanh: "GELUTanh",
    gelu_sigmoid: "GELUSigmoid",
}


def specification(model, max_length):
    """Return the model and its weights as one of `ctranslate2.specs`, without a vocabulary."""
    from ctranslate2 import specs

    stacks = _stacks(model)
    if model.embedding.logits_cap is not None:
        _refuse(model.embedding, "logits without a bound")
    for name, stack in stacks.items():
        _check_stack(stack, name)
    block, *others = [stack.blocks[0] for stack in stacks.values()]
    if any(_settings(other) != _settings(block) for other in others):
        _refuse(_settings(block), "encoders and decoders with equal settings")
    if others:
        kind, depth = specs.TransformerSpec, [stack.num_layers for stack in stacks.values()]
    else:
        kind, depth = specs.TransformerDecoderModelSpec, stacks["decoder"].num_layers
    spec = kind.from_config(
        depth,
        block.attention.num_heads,
        pre_norm=isinstance(block.residual, PreNorm),
        activation=specs.Activation[_ACTIVATIONS[block.feed_forward.activation]],
    )
    spec.config.layer_norm_epsilon = block.residual.norm.epsilon
    for name, stack in stacks.items():
        _fill_stack(getattr(spec, name), model, stack, max_length)
    if others:
        spec.config.add_source_eos = True
    return spec


def _stacks(model):
    kinds = EncoderDecoder, CausalLanguageModel
    if isinstance(model, kinds) and model.memory is None and model.head is None:
        if isinstance(model, CausalLanguageModel):
            return {"decoder": model.depth}
        if model.source_position is None:
            return {"encoder": model.encoder, "decoder": model.decoder}
    names = " or ".join(f"`{kind.__name__}`" for kind in kinds)
    _refuse(model, f"an {names}, of text, without a memory and without a head of its own")


def _check_stack(stack, name):
    if type(stack) is not Stack:
        _refuse(stack, "a `Stack`")
    for block in stack.blocks:
        if type(block) is not TransformerBlock or _settings(block) != _settings(stack.blocks[0]):
            _refuse(block, "a `TransformerBlock` with equal settings in all layers")
        if type(block.residual) not in (PostNorm, PreNorm):
            _refuse(block.residual, "`PostNorm` or `PreNorm`")
        if type(block.residual.norm) is not LayerNorm or not block.residual.norm.use_bias:
            _refuse(block.residual, "a `LayerNorm` with a bias")
        feed_forward = block.feed_forward
        if type(feed_forward) is not FeedForward or feed_forward.activation not in _ACTIVATIONS:
            _refuse(feed_forward, "a `FeedForward` with activation relu, gelu or silu")
        _check_attention(block.attention, Dense if name == "encoder" else Causal)
        if block.cross_attention is not None:
            _check_attention(block.cross_attention, Dense)


def _check_attention(layer, pattern):
    is_plain = (
        type(layer) is MultiHeadAttention
        and type(layer.pattern) is pattern
        and type(layer.score) is DotProduct
        and layer.score.scaled
        and layer.position is None
        and layer.qk_norm is None
        and not (layer.sinks or layer.use_gate)
        and layer.num_key_value_heads == layer.num_heads
        and layer.key_dim == layer.value_dim
    )
    if not is_plain:
        name = pattern.__name__
        _refuse(layer, f"a `MultiHeadAttention` with scaled dot products, pattern {name}")


def _settings(block):
    """Return the settings that must be equal in all blocks."""
    norm = repr(block.residual.norm)
    return block.attention.num_heads, block.feed_forward.activation, type(block.residual), norm


def _refuse(part, supported):
    raise ValueError(f"CTranslate2 lacks this part; it supports {supported}. Received: {part!r}.")


def _fill_stack(spec, model, stack, max_length):
    embedding = model.embedding
    table = _array(embedding.table)
    if isinstance(spec.embeddings, list):
        spec.embeddings[0].weight = table
    else:
        spec.embeddings.weight = spec.projection.weight = table
    spec.scale_embeddings = bool(embedding.scaled)
    positions = ops.zeros((1, max_length, embedding.hidden_dim))
    if model.position is not None:
        positions = model.position(positions)
    spec.position_encodings.encodings = _array(positions[0])
    if stack.norm is not None:
        _fill_norm(spec.layer_norm, stack.norm)
    for layer, block in zip(spec.layer, stack.blocks, strict=True):
        _fill_attention(layer.self_attention, block, "attention", ("query key value", "output"))
        if block.cross_attention is not None:
            parts = ("query", "key value", "output")
            _fill_attention(layer.attention, block, "cross_attention", parts)
        _fill_linear(layer.ffn.linear_0, block.feed_forward.intermediate)
        _fill_linear(layer.ffn.linear_1, block.feed_forward.output_dense)
        _fill_norm(layer.ffn.layer_norm, block.feed_forward_residual.norm)


def _fill_attention(spec, block, name, parts):
    """Fill an attention's linear layers; projections of the same input are concatenated."""
    layer = getattr(block, name)
    for linear, names in zip(spec.linear, parts, strict=True):
        kernels, biases = [], []
        for part in names.split():
            kernel = _array(getattr(layer, f"{part}_kernel"))
            inputs = 2 if part == "output" else 1  # kernel: (heads, size, D), or (D, heads, size)
            kernels.append(kernel.reshape(np.prod(kernel.shape[:inputs]), -1).T)
            if layer.use_bias:
                biases.append(_array(getattr(layer, f"{part}_bias")).ravel())
        linear.weight = np.concatenate(kernels)
        if layer.use_bias:
            linear.bias = np.concatenate(biases)
    _fill_norm(spec.layer_norm, getattr(block, f"{name}_residual").norm)


def _fill_linear(spec, dense):
    spec.weight = np.ascontiguousarray(_array(dense.kernel).T)
    if dense.use_bias:
        spec.bias = _array(dense.bias)


def _fill_norm(spec, norm):
    spec.gamma, spec.beta = _array(norm.gamma), _array(norm.beta)


def _array(weight):
    return ops.convert_to_numpy(weight).astype("float32")
