"""Qwen 2 and 3: Llama with biases, or with norms of queries and keys."""

from keras_attn.convert.hugging_face.decoder import PROJECTIONS, Decoder
from keras_attn.convert.hugging_face.decoder_family import (
    FIRST,
    decoder_family,
    model_windows,
    window_options,
)
from keras_attn.convert.hugging_face.family import read_part
from keras_attn.convert.hugging_face.layer_types import layer_types, windows
from keras_attn.convert.hugging_face.rotary import read_rotary


def _read_2(config):
    return _read(config, biases=("query", "key", "value"))


def _read_3(config):
    biases = tuple(PROJECTIONS) if config.flag("attention_bias") else ()
    return _read(config, biases=biases, has_qk_norm=True)


def _read(config, **options):
    has_window = config.flag("use_sliding_window")
    first = config.number("max_window_layers", 28) if has_window else None
    types = layer_types(config, lambda index: first is not None and index >= first)
    return Decoder(
        position=lambda index: read_rotary(config),
        window=windows(config, types),
        **options,
    )


def _options_2(model):
    return {**window_options(model), "use_sliding_window": any(model_windows(model))}


def _options_3(model):
    return {**_options_2(model), "attention_bias": read_part(model, f"{FIRST}.attention.use_bias")}


FAMILY_2 = decoder_family("Qwen2", _read_2, _options_2)
FAMILY_3 = decoder_family("Qwen3", _read_3, _options_3)
