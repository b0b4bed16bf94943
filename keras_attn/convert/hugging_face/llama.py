"""Llama 2 and 3."""

from keras_attn.convert.hugging_face.decoder import PROJECTIONS, Decoder
from keras_attn.convert.hugging_face.decoder_family import FIRST, decoder_family
from keras_attn.convert.hugging_face.family import read_options
from keras_attn.convert.hugging_face.rotary import read_rotary


def _read(config):
    return Decoder(
        position=lambda index: read_rotary(config),
        biases=tuple(PROJECTIONS) if config.flag("attention_bias") else (),
        feed_forward_bias=config.flag("mlp_bias"),
    )


def _more_options(model):
    paths = {
        "attention_bias": f"{FIRST}.attention.use_bias",
        "mlp_bias": f"{FIRST}.feed_forward.use_bias",
    }
    return read_options(model, paths)


FAMILY = decoder_family("Llama", _read, _more_options)
