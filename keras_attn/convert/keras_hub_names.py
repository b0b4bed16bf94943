"""KerasHub's backbones as checkpoints of Hugging Face: names and shapes of their weights."""

import re

import numpy as np
from keras import ops

# The part of a `TransformerBlock` for each layer of a block, in whatever backbone it is.
_ATTENTIONS = {
    **dict.fromkeys(("self_attention_layer", "self_attention", "attention"), "attention"),
    "cross_attention": "cross_attention",
}
_PROJECTIONS = {"query": "query", "key": "key", "value": "value", "attention_output": "output"}
BLOCK = {
    **{
        f"{theirs}/{layer}": f"{ours}.{projection}"
        for theirs, ours in _ATTENTIONS.items()
        for layer, projection in _PROJECTIONS.items()
    },
    "self_attention/query_dense_layernorm": "attention.qk_norm",
    "self_attention/key_dense_layernorm": "attention.key_norm",
    "self_attention_layer_norm": "attention_residual.norm",
    "self_attention_layernorm": "attention_residual.norm",
    "pre_attention_norm": "attention_residual.norm",
    "post_attention_norm": "attention_residual.output_norm",
    "cross_attention_layer_norm": "cross_attention_residual.norm",
    "feedforward_layer_norm": "feed_forward_residual.norm",
    "feedforward_layernorm": "feed_forward_residual.norm",
    "pre_ffw_norm": "feed_forward_residual.norm",
    "post_ffw_norm": "feed_forward_residual.output_norm",
    "feedforward_gate_dense": "feed_forward.gate",
    "feedforward_intermediate_dense": "feed_forward.intermediate",
    "feedforward_output_dense": "feed_forward.output_dense",
    "ffw_gating": "feed_forward.gate",
    "ffw_gating_2": "feed_forward.intermediate",
    "ffw_linear": "feed_forward.output_dense",
}
_INDEXED = re.compile(r"(transformer(?:_encoder|_decoder)?_layer|decoder_block)_(\d+)/(.+)")
_BIASES = "bias", "beta"


def list_tensors(backbone, kind):
    """Return the weights of a backbone as `tensor_files.list_tensors` does those of a folder.

    Args:
        backbone: a backbone of KerasHub.
        kind: the `keras_hub_kinds.Kind` of its class.

    Raises:
        ValueError: if the backbone has a weight for which the kind has no name.
    """
    tensors = {}
    for variable in backbone.weights:
        layer, _, leaf = variable.path.rpartition("/")
        name = _layer_name(variable.path if leaf == "reverse_embeddings" else layer, kind)
        if name is None:
            raise ValueError(
                "`backbone` has a weight that the models of its kind do not have. "
                f"Received: backbone={backbone!r}, with {variable.path!r}."
            )
        change = _change(layer.rpartition("/")[2], leaf, kind)
        shape = change(np.broadcast_to(np.float32(0), variable.shape)).shape
        tensors[f"{name}.{'bias' if leaf in _BIASES else 'weight'}"] = (
            shape,
            _reader(variable, change),
        )
    return kind.more(tensors)


def _reader(variable, change):
    return lambda: change(ops.convert_to_numpy(ops.cast(variable, "float32")))


def _layer_name(path, kind):
    """Return the name on disk of a layer; None for an unknown one."""
    found = _INDEXED.search(path)
    if found is None:
        return kind.names.get(path)
    layers, index, layer = found.groups()
    part = kind.block.get(BLOCK.get(layer))
    return part and kind.names[layers].format(index) + part


def _change(layer, leaf, kind):
    """Return the function from a weight to the tensor on disk."""

    def change(value):
        if leaf == "bias":
            return value.reshape(-1)
        if leaf == "reverse_embeddings":
            return value.T
        if leaf != "kernel":
            return value
        if value.ndim == 3 and layer == "attention_output":  # (N, H, D)
            value = value.reshape(-1, value.shape[-1])
        elif value.ndim == 3:  # (D, N, H), of Gemma (N, D, H)
            value = value.transpose(1, 0, 2) if kind.heads_first else value
            value = value.reshape(value.shape[0], -1)
        return value.T if kind.is_linear else value

    return change


def join(tensors, names, joined):
    """Put tensors side by side along the last axis, under one name."""
    parts = [tensors.pop(name) for name in names]
    shape = *parts[0][0][:-1], sum(part[0][-1] for part in parts)
    tensors[joined] = shape, lambda: np.concatenate([read() for _, read in parts], axis=-1)


def with_rows_before(tensors, name, count):
    """Put rows of zeros before a table."""
    (length, width), read = tensors[name]
    tensors[name] = (count + length, width), lambda: np.pad(read(), ((count, 0), (0, 0)))


def zeros(*shape):
    """Return a tensor of zeros, as `list_tensors` does."""
    return shape, lambda: np.zeros(shape, "float32")
