"""Qwen 2 and 3: Llama with biases, or with norms of queries and keys."""

from keras_attn.convert.hugging_face.decoder import PROJECTIONS, Decoder, convert_decoder
from keras_attn.convert.hugging_face.layer_types import layer_types, windows
from keras_attn.convert.hugging_face.rotary import read_rotary


def convert_2(checkpoint, overrides):
    """Return a `CausalLanguageModel` with the weights of a checkpoint of Qwen 2."""
    return _convert(checkpoint, overrides, biases=("query", "key", "value"))


def convert_3(checkpoint, overrides):
    """Return a `CausalLanguageModel` with the weights of a checkpoint of Qwen 3."""
    biases = tuple(PROJECTIONS) if checkpoint.config.flag("attention_bias") else ()
    return _convert(checkpoint, overrides, biases=biases, has_qk_norm=True)


def _convert(checkpoint, overrides, **options):
    config = checkpoint.config
    first = config.get("max_window_layers", 28) if config.flag("use_sliding_window") else None
    types = layer_types(config, lambda index: first is not None and index >= first)
    decoder = Decoder(
        position=lambda index: read_rotary(config),
        window=windows(config, types),
        **options,
    )
    return convert_decoder(checkpoint, overrides, decoder)
