"""The kinds of KerasHub's backbones: the family of each, its options and its names."""

import dataclasses
from collections.abc import Callable

from keras_attn.convert import keras_hub_names as names
from keras_attn.convert.hugging_face import bert, decoder, distilbert, encoder_decoder
from keras_attn.convert.hugging_face.layer_types import FULL, SLIDING

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
    **{f"attention.{ours}": f"self_attn.{name}" for ours, name in decoder.PROJECTIONS.items()},
    "attention.qk_norm": "self_attn.q_norm",
    "attention.key_norm": "self_attn.k_norm",
    **decoder.FEED_FORWARD,
}
_DECODER_BLOCK = {**_DECODER_PARTS, **decoder.PRE_NORMS}
_SANDWICH_BLOCK = {**_DECODER_PARTS, **decoder.SANDWICH_NORMS}


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
    found = {**_bert_options(c), "layer_norm_eps": 1e-5, "pad_token_id": 1}
    return {**found, "max_position_embeddings": c["max_sequence_length"] + 2}


def _with_roberta_rows(tensors):
    """Add the rows before the first position, and a vector of the segment, which is 0."""
    names.with_rows_before(tensors, f"{_POSITIONS}.weight", 2)
    width = tensors[f"{_TABLE}.weight"][0][1]
    return {**tensors, "embeddings.token_type_embeddings.weight": names.zeros(1, width)}


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
        names.join(tensors, parts, name.replace("query", "c_attn"))
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
    return {**_decoder_options(c), "layer_types": kinds, "sliding_window": window}


def _gemma_options(c):
    found = {**_decoder_options(c), "intermediate_size": c["intermediate_dim"] // 2}
    return {**found, "hidden_act": "gelu_pytorch_tanh"}


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
        names.with_rows_before(tensors, f"{side}.embed_positions.weight", 2)
    vocabulary_size = tensors["shared.weight"][0][0]
    return {**tensors, encoder_decoder.BIAS: names.zeros(1, vocabulary_size)}


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
        {**encoder_decoder.BLOCK, **encoder_decoder.CROSS_ATTENTION},
        more=_with_bart_rows,
    ),
    "BertBackbone": Kind(
        "bert",
        # KerasHub has the approximation by tanh.
        lambda c: {**_bert_options(c), "hidden_act": "gelu_new"},
        _BERT_NAMES,
        bert.BLOCK,
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
        distilbert.BLOCK,
    ),
    "RobertaBackbone": Kind(
        "roberta",
        _roberta_options,
        {
            **_BERT_NAMES,
            "embeddings/token_embedding": _TABLE,
            "embeddings/position_embedding": _POSITIONS,
        },
        bert.BLOCK,
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
