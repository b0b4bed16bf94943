"""Marian, the models of OPUS-MT: BART with sinusoidal positions, without the norm after them."""

from keras_attn import positions
from keras_attn.convert.hugging_face.encoder_decoder import (
    BIAS,
    build_sides,
    copy_sides,
    drop_copies,
    side_options,
)
from keras_attn.convert.hugging_face.family import Family


def convert(checkpoint, overrides):
    """Return an `EncoderDecoder` with the weights of a checkpoint.

    Targets start with the id of padding.
    """
    checkpoint.ignore("*.embed_positions.weight")  # sinusoids
    checkpoint.strip("model.")
    drop_copies(checkpoint)
    model = _build(checkpoint.config, overrides)
    copy_sides(checkpoint, model)
    return model


def _build(config, overrides, has_bias=True):
    config.require(normalize_before=False, add_final_layer_norm=False, normalize_embedding=False)
    return build_sides(
        *(config, overrides, config.index("pad_token_id", None)),
        position=positions.Sinusoidal(layout="concat"),
        has_bias=has_bias,
    )


def options(model):
    """Return the options of `config.json` for a model."""
    return {
        **side_options(model),
        "share_encoder_decoder_embeddings": model.embedding is model.target_embedding,
        "decoder_vocab_size": model.target_embedding.vocabulary_size,
        "architectures": ["MarianMTModel"],
    }


FAMILY = Family(
    convert=convert,
    options=options,
    build=lambda config, model: _build(config, {}, has_bias=model.head is not None),
    copy_weights=copy_sides,
    prefix="model.",
    heads=(BIAS,),
    free=("start_id",),  # changes the model only if it is the id of padding
)
