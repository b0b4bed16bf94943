"""KerasHub's backbones as checkpoints of Hugging Face.

A kind of backbones has a family of checkpoints, its options, and the names of the weights.
"""

import dataclasses
import re
from collections.abc import Callable

import numpy as np
from keras import ops

from keras_attn.convert.hugging_face.config import FULL, SLIDING
from keras_attn.convert.hugging_face.families import encoder_decoders, encoders
from keras_attn.convert.hugging_face.families.gemma import Gemma2
from keras_attn.convert.hugging_face.families.rotary_decoders import RotaryDecoder

_TABLE, _POSITIONS = "embeddings.word_embeddings", "embeddings.position_embeddings"
_ENCODER = {"embeddings_layer_norm": "embeddings.LayerNorm"}
_BERT_NAMES = {
    **_ENCODER,
    "token_embedding": _TABLE,
    "position_embedding": _POSITIONS,
    "segment_embedding": "embeddings.token_type_embeddings",
    "pooled_dense": "pooler.dense",
    "transformer_layer": "encoder.layer.{}.",
}
_GPT2_BLOCK = {
    "attention.query": "attn.query",
    "attention.key": "attn.key",
    "attention.value": "attn.value",
    "attention.output": "attn.c_proj",
    "attention_residual.norm": "ln_1",
    "feed_forward.intermediate": "mlp.c_fc",
    "feed_forward.output_dense": "mlp.c_proj",
    "feed_forward_residual.norm": "ln_2",
}
_DECODER_NAMES = {
    "token_embedding": "embed_tokens",
    "token_embedding/reverse_embeddings": "lm_head",
    "transformer_layer": "layers.{}.",
    "decoder_block": "layers.{}.",
    "sequence_output_layernorm": "norm",
    "final_normalization": "norm",
}
_DECODER_PARTS = {
    **{f"attention.{key}": f"self_attn.{x}" for key, x in RotaryDecoder.projections.items()},
    **{f"attention.{key}": f"self_attn.{x}" for key, x in RotaryDecoder.qk_norms.items()},
    **{f"feed_forward.{key}": x for key, x in RotaryDecoder.feed_forward.items()},
}
_DECODER_BLOCK = {**_DECODER_PARTS, **RotaryDecoder.norms}
_SANDWICH_BLOCK = {**_DECODER_PARTS, **Gemma2.norms}


@dataclasses.dataclass(frozen=True)
class Kind:
    """A class of backbones of KerasHub, read as checkpoints of a family.

    Args:
        model_type: str. The family.
        options: function from the backbone's configuration to the options of `config.json`.
        names: dict of the names on disk by the path of a layer. That of a block is a beginning
            with a field `{}` for its index.
        block: dict of the names of a block's parts, by their paths in a `TransformerBlock`.
        is_linear: bool. If True, kernels on disk are (out, in).
        heads_first: bool. If True, the first axis of the backbone's projections is the heads'.
        more: function from the tensors to those of the family.
    """

    model_type: str
    options: Callable
    names: dict
    block: dict
    is_linear: bool = True
    heads_first: bool = False
    more: Callable = lambda tensors: tensors


def _bert_options(c):
    return {
        "vocab_size": c["vocabulary_size"],
        "num_hidden_layers": c["num_layers"],
        "num_attention_heads": c["num_heads"],
        "hidden_size": c["hidden_dim"],
        "intermediate_size": c["intermediate_dim"],
        "hidden_dropout_prob": c["dropout"],
        "max_position_embeddings": c["max_sequence_length"],
        "type_vocab_size": c.get("num_segments", 1),
    }


def _roberta_options(c):
    length = c["max_sequence_length"] + 2
    own = {"layer_norm_eps": 1e-5, "pad_token_id": 1, "max_position_embeddings": length}
    return {**_bert_options(c), **own}


def _with_roberta_rows(tensors):
    """Add the rows before the first position, and a vector of the segment, which is 0."""
    with_rows_before(tensors, f"{_POSITIONS}.weight", 2)
    width = tensors[f"{_TABLE}.weight"][0][1]
    return {**tensors, "embeddings.token_type_embeddings.weight": zeros(1, width)}


def _distilbert_options(c):
    return {
        "vocab_size": c["vocabulary_size"],
        "n_layers": c["num_layers"],
        "n_heads": c["num_heads"],
        "dim": c["hidden_dim"],
        "hidden_dim": c["intermediate_dim"],
        "dropout": c["dropout"],
        "max_position_embeddings": c["max_sequence_length"],
    }


def _gpt2_options(c):
    return {
        "vocab_size": c["vocabulary_size"],
        "n_layer": c["num_layers"],
        "n_head": c["num_heads"],
        "n_embd": c["hidden_dim"],
        "n_inner": c["intermediate_dim"],
        "resid_pdrop": c["dropout"],
        "n_positions": c["max_sequence_length"],
    }


def _with_joined_projections(tensors):
    """Join the projections of queries, keys and values, which are one layer on disk."""
    for name in [x for x in tensors if ".attn.query." in x]:
        parts = [name.replace("query", part) for part in ("query", "key", "value")]
        join(tensors, parts, name.replace("query", "c_attn"))
    return tensors


def _decoder_options(c):
    return {
        "vocab_size": c["vocabulary_size"],
        "num_hidden_layers": c["num_layers"],
        "num_attention_heads": c["num_query_heads"],
        "num_key_value_heads": c["num_key_value_heads"],
        "head_dim": c.get("head_dim"),
        "hidden_size": c["hidden_dim"],
        "intermediate_size": c["intermediate_dim"],
        "rms_norm_eps": c["layer_norm_epsilon"],
        "rope_theta": c.get("rope_max_wavelength", 10000),
        "rope_scaling": _scaling(c),
        "tie_word_embeddings": True,  # unless there is a second table
    }


def _scaling(c):
    factor = c.get("rope_frequency_adjustment_factor")
    if factor is not None:
        return {
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": c["rope_low_freq_factor"],
            "high_freq_factor": c["rope_high_freq_factor"],
            "original_max_position_embeddings": c["rope_pretraining_sequence_length"],
        }
    factor = c.get("rope_position_scaling_factor", c.get("rope_scaling_factor", 1))
    return None if factor == 1 else {"rope_type": "linear", "factor": factor}


def _mistral_options(c):
    return {**_decoder_options(c), "sliding_window": c["sliding_window"]}


def _qwen_options(c):
    window = c["sliding_window_size"]
    is_sliding = window is not None and c.get("use_sliding_window_attention", True)
    kinds = [SLIDING if is_sliding else FULL] * c["num_layers"]
    return {
        **_decoder_options(c),
        "layer_types": kinds,
        "use_sliding_window": is_sliding,
        "sliding_window": window,
    }


def _gemma_options(c):
    own = {"intermediate_size": c["intermediate_dim"] // 2, "hidden_act": "gelu_pytorch_tanh"}
    return {**_decoder_options(c), **own}


def _gemma2_options(c):
    is_sliding = c["use_sliding_window_attention"]
    kinds = [FULL if index % 2 or not is_sliding else SLIDING for index in range(c["num_layers"])]
    by_head = c["query_head_dim_normalize"]
    return {
        **_gemma_options(c),
        "layer_types": kinds,
        "sliding_window": c["sliding_window_size"],
        "query_pre_attn_scalar": (
            c["head_dim"] if by_head else c["hidden_dim"] // c["num_query_heads"]
        ),
        "attn_logit_softcapping": c["attention_logit_soft_cap"],
        "final_logit_softcapping": c["final_logit_soft_cap"],
    }


def _bart_options(c):
    return {
        "vocab_size": c["vocabulary_size"],
        "d_model": c["hidden_dim"],
        "max_position_embeddings": c["max_sequence_length"],
        "dropout": c["dropout"],
        "decoder_start_token_id": 2,
        **{f"{side}_layers": c["num_layers"] for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": c["num_heads"] for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": c["intermediate_dim"] for side in ("encoder", "decoder")},
    }


def _with_bart_rows(tensors):
    """Add the rows before the first position, and the bias of the logits, which is 0."""
    for side in ("encoder", "decoder"):
        with_rows_before(tensors, f"{side}.embed_positions.weight", 2)
    vocabulary_size = tensors["shared.weight"][0][0]
    return {**tensors, encoder_decoders.BIAS: zeros(1, vocabulary_size)}


_BART_NAMES = {
    "token_embedding": "shared",
    **{
        f"{side}_{ours}": f"{side}.{theirs}"
        for side in ("encoder", "decoder")
        for ours, theirs in (
            ("position_embedding", "embed_positions"),
            ("embeddings_layer_norm", "layernorm_embedding"),
        )
    },
    **{f"transformer_{side}_layer": f"{side}.layers.{{}}." for side in ("encoder", "decoder")},
}
KINDS = {
    "BartBackbone": Kind(
        "bart",
        _bart_options,
        _BART_NAMES,
        {**encoder_decoders.BLOCK, **encoder_decoders.CROSS_ATTENTION},
        more=_with_bart_rows,
    ),
    "BertBackbone": Kind(
        "bert",
        # KerasHub has the approximation by tanh.
        lambda c: {**_bert_options(c), "hidden_act": "gelu_new"},
        _BERT_NAMES,
        encoders.BLOCK,
    ),
    "DistilBertBackbone": Kind(
        "distilbert",
        _distilbert_options,
        {
            **_ENCODER,
            "token_and_position_embedding/token_embedding": _TABLE,
            "token_and_position_embedding/position_embedding": _POSITIONS,
            "transformer_layer": "transformer.layer.{}.",
        },
        encoders.DISTILBERT_BLOCK,
    ),
    "RobertaBackbone": Kind(
        "roberta",
        _roberta_options,
        {
            **_BERT_NAMES,
            "embeddings/token_embedding": _TABLE,
            "embeddings/position_embedding": _POSITIONS,
        },
        encoders.BLOCK,
        more=_with_roberta_rows,
    ),
    "GPT2Backbone": Kind(
        "gpt2",
        _gpt2_options,
        {
            "token_embedding": "wte",
            "position_embedding": "wpe",
            "layer_norm": "ln_f",
            "transformer_layer": "h.{}.",
        },
        _GPT2_BLOCK,
        is_linear=False,
        more=_with_joined_projections,
    ),
    "LlamaBackbone": Kind("llama", _decoder_options, _DECODER_NAMES, _DECODER_BLOCK),
    "MistralBackbone": Kind("mistral", _mistral_options, _DECODER_NAMES, _DECODER_BLOCK),
    "QwenBackbone": Kind("qwen2", _qwen_options, _DECODER_NAMES, _DECODER_BLOCK),
    "Qwen3Backbone": Kind("qwen3", _qwen_options, _DECODER_NAMES, _DECODER_BLOCK),
}
_GEMMA = {"names": _DECODER_NAMES, "heads_first": True}
GEMMA = Kind("gemma", _gemma_options, block=_DECODER_BLOCK, **_GEMMA)
GEMMA_2 = Kind("gemma2", _gemma2_options, block=_SANDWICH_BLOCK, **_GEMMA)


# The part of a `TransformerBlock` for each layer of a block, in whatever backbone it is.
_ATTENTIONS = {
    **dict.fromkeys(("self_attention_layer", "self_attention", "attention"), "attention"),
    "cross_attention": "cross_attention",
}
_PROJECTIONS = {"query": "query", "key": "key", "value": "value", "attention_output": "output"}
PARTS = {
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
        kind: the `Kind` of its class.

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
    match = _INDEXED.search(path)
    if match is None:
        return kind.names.get(path)
    layers, index, layer = match.groups()
    part = kind.block.get(PARTS.get(layer))
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
