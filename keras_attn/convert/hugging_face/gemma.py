"""Gemma 1 to 3: Llama with other norms, windows in some layers and caps."""

import math

from keras_attn import scores
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.decoder import PROJECTIONS, Decoder
from keras_attn.convert.hugging_face.decoder_family import FIRST, decoder_family, window_options
from keras_attn.convert.hugging_face.family import read_part
from keras_attn.convert.hugging_face.layer_types import FULL, SLIDING, layer_types, windows
from keras_attn.convert.hugging_face.rotary import read_rotary, rotary_options
from keras_attn.ops.activations import gelu_tanh


def _read_1(config):
    # The first files say "gelu" and mean its approximation.
    is_tanh = config.get("hidden_activation") is None and config.get("hidden_act") == "gelu"
    key = "hidden_act" if config.get("hidden_activation") is None else "hidden_activation"
    return _read(
        config,
        position=lambda index: read_rotary(config),
        activation=gelu_tanh if is_tanh else config.activation(key, "gelu_pytorch_tanh"),
    )


def _read_2(config):
    cap = _cap(config, "attn_logit_softcapping", 50.0)
    types = layer_types(config, lambda index: index % 2 == 0)
    return _read_sandwich(
        *(config, types),
        position=lambda index: read_rotary(config),
        score=lambda: "scaled_dot" if cap is None else scores.SoftCap(scores.DotProduct(), cap),
        logits_cap=_cap(config, "final_logit_softcapping", 30.0),
    )


def _read_3(config):
    period = config.size("sliding_window_pattern", 6)
    types = layer_types(config, lambda index: (index + 1) % period)

    def position(index):
        if types[index] == SLIDING:
            return read_rotary(config, SLIDING, "rope_local_base_freq", 1e4)
        return read_rotary(config, FULL, theta=1e6)

    return _read_sandwich(
        *(config, types),
        position=position,
        has_qk_norm=True,
        logits_cap=_cap(config, "final_logit_softcapping", None),
    )


def _read_sandwich(config, types, **options):
    scalar = config.number("query_pre_attn_scalar", 256)
    return _read(
        config,
        window=windows(config, types),
        activation=config.activation("hidden_activation", "gelu_pytorch_tanh"),
        is_sandwich=True,
        query_scale=lambda size: math.sqrt(size / scalar),
        **options,
    )


def _read(config, **options):
    config.require(use_bidirectional_attention=False)
    biases = tuple(PROJECTIONS) if config.flag("attention_bias") else ()
    return Decoder(biases=biases, norm_offset=1.0, is_scaled=True, is_tied=True, **options)


def _cap(config, name, default):
    """Return a cap: null in the file stands for none, an absent key for the default."""
    return config.values.get(name, default)


def _options_1(model):
    attention = read_part(model, f"{FIRST}.attention")
    return {"attention_bias": attention.use_bias}


def _options_2(model):
    score = read_part(model, f"{FIRST}.attention.score")
    return {
        **_sandwich_options(model),
        "attn_logit_softcapping": score.cap if isinstance(score, scores.SoftCap) else None,
    }


def _options_3(model):
    found = _sandwich_options(model)
    by_type = {FULL: {"rope_theta": 1e6}, SLIDING: {"rope_theta": 1e4}}
    for kind, block in zip(found["layer_types"], model.depth.blocks, strict=True):
        by_type[kind] = rotary_options(block.attention.position)["rope_parameters"]
    return {**found, "rope_parameters": by_type}


def _sandwich_options(model):
    activation = read_part(model, f"{FIRST}.feed_forward.activation")
    return {
        **_options_1(model),
        **window_options(model),
        "hidden_activation": activation_name(activation),
        # The scale 1 / sqrt(H), which the weights of queries need not be multiplied with.
        "query_pre_attn_scalar": read_part(model, f"{FIRST}.attention.key_dim"),
        "final_logit_softcapping": model.embedding.logits_cap if model.head is None else None,
    }


FAMILY_1 = decoder_family("Gemma", _read_1, _options_1, pad_id=0)
FAMILY_2 = decoder_family("Gemma2", _read_2, _options_2, pad_id=0)
FAMILY_3 = decoder_family("Gemma3", _read_3, _options_3, "Gemma3Text", pad_id=0)
