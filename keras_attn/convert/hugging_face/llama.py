"""Llama 2 and 3."""

from keras_attn.convert.hugging_face.decoder import PROJECTIONS, Decoder, convert_decoder
from keras_attn.convert.hugging_face.rotary import read_rotary


def convert(checkpoint, overrides):
    """Return a `CausalLanguageModel` with the weights of a checkpoint."""
    config = checkpoint.config
    decoder = Decoder(
        position=lambda index: read_rotary(config),
        biases=tuple(PROJECTIONS) if config.flag("attention_bias") else (),
        feed_forward_bias=config.flag("mlp_bias"),
    )
    return convert_decoder(checkpoint, overrides, decoder)
