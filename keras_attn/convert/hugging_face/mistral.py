"""Mistral: Llama with a window of keys in each layer."""

from keras_attn.convert.hugging_face.decoder import Decoder
from keras_attn.convert.hugging_face.decoder_family import decoder_family, model_windows
from keras_attn.convert.hugging_face.rotary import read_rotary


def _read(config):
    config.require(layer_types=None)
    # Null stands for no window, an absent key for the default.
    window = config.values.get("sliding_window", 4096)
    return Decoder(
        position=lambda index: read_rotary(config),
        window=lambda index: window,
    )


FAMILY = decoder_family("Mistral", _read, lambda model: {"sliding_window": model_windows(model)[0]})
