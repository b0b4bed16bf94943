"""Gemma 1 to 3: Llama with other norms, windows in some layers and caps."""

import math

from keras_attn import scores
from keras_attn.convert.hugging_face.decoder import PROJECTIONS, Decoder, convert_decoder
from keras_attn.convert.hugging_face.layer_types import FULL, SLIDING, layer_types, windows
from keras_attn.convert.hugging_face.rotary import read_rotary
from keras_attn.ops.activations import gelu_tanh


def convert_1(checkpoint, overrides):
    """Return a `CausalLanguageModel` with the weights of a checkpoint of Gemma 1."""
    config = checkpoint.config
    # The first files say "gelu" and mean its approximation.
    is_tanh = config.get("hidden_activation") is None and config.get("hidden_act") == "gelu"
    key = "hidden_act" if config.get("hidden_activation") is None else "hidden_activation"
    return _convert(
        *(checkpoint, overrides),
        position=lambda index: read_rotary(config),
        activation=gelu_tanh if is_tanh else config.activation(key, "gelu_pytorch_tanh"),
    )


def convert_2(checkpoint, overrides):
    """Return a `CausalLanguageModel` with the weights of a checkpoint of Gemma 2."""
    config = checkpoint.config
    cap = _cap(config, "attn_logit_softcapping", 50.0)
    types = layer_types(config, lambda index: index % 2 == 0)
    return _convert_sandwich(
        *(checkpoint, overrides, types),
        position=lambda index: read_rotary(config),
        score=lambda: "scaled_dot" if cap is None else scores.SoftCap(scores.DotProduct(), cap),
        logits_cap=_cap(config, "final_logit_softcapping", 30.0),
    )


def convert_3(checkpoint, overrides):
    """Return a `CausalLanguageModel` with the weights of a checkpoint of Gemma 3, the text part."""
    config = checkpoint.config
    period = config.size("sliding_window_pattern", 6)
    types = layer_types(config, lambda index: (index + 1) % period)

    def position(index):
        if types[index] == SLIDING:
            return read_rotary(config, SLIDING, "rope_local_base_freq", 1e4)
        return read_rotary(config, FULL, theta=1e6)

    return _convert_sandwich(
        *(checkpoint, overrides, types),
        position=position,
        has_qk_norm=True,
        logits_cap=_cap(config, "final_logit_softcapping", None),
    )


def _convert_sandwich(checkpoint, overrides, types, **options):
    config = checkpoint.config
    scalar = config.number("query_pre_attn_scalar", 256)
    return _convert(
        *(checkpoint, overrides),
        window=windows(config, types),
        activation=config.activation("hidden_activation", "gelu_pytorch_tanh"),
        is_sandwich=True,
        query_scale=lambda size: math.sqrt(size / scalar),
        **options,
    )


def _convert(checkpoint, overrides, **options):
    config = checkpoint.config
    config.require(use_bidirectional_attention=False)
    biases = tuple(PROJECTIONS) if config.flag("attention_bias") else ()
    decoder = Decoder(biases=biases, norm_offset=1.0, is_scaled=True, is_tied=True, **options)
    return convert_decoder(checkpoint, overrides, decoder)


def _cap(config, name, default):
    """Return a cap: null in the file stands for none, an absent key for the default."""
    return config.values.get(name, default)
