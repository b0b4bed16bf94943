"""Mistral: Llama with a window of keys in each layer."""

from keras_attn.convert.hugging_face.decoder import Decoder, convert_decoder
from keras_attn.convert.hugging_face.rotary import read_rotary


def convert(checkpoint, overrides):
    """Return a `CausalLanguageModel` with the weights of a checkpoint."""
    config = checkpoint.config
    config.require(layer_types=None)
    # Null stands for no window, an absent key for the default.
    window = config.values.get("sliding_window", 4096)
    decoder = Decoder(
        position=lambda index: read_rotary(config),
        window=lambda index: window,
    )
    return convert_decoder(checkpoint, overrides, decoder)
