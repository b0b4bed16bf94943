"""Marian, as of OPUS-MT: BART with sinusoidal positions and without the norm after them."""

from keras_attn import positions
from keras_attn.convert.hugging_face import bart
from keras_attn.convert.hugging_face.family import Family


def convert(checkpoint, overrides):
    """Return an `EncoderDecoder` with the weights of a checkpoint.

    Targets start with the id of padding.
    """
    config = checkpoint.config
    config.require(normalize_before=False, add_final_layer_norm=False, normalize_embedding=False)
    checkpoint.ignore("*.embed_positions.weight")  # sinusoids
    return bart.convert_sides(
        *(checkpoint, overrides, config.index("pad_token_id", None)),
        position=positions.Sinusoidal(layout="concat"),
    )


FAMILY = Family(convert)
