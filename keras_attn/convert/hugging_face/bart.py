"""BART: its names on disk, and the model for them."""

from keras_attn import norms, positions
from keras_attn.convert.hugging_face.encoder_decoder import (
    BIAS,
    build_sides,
    copy_sides,
    drop_copies,
    side_options,
)
from keras_attn.convert.hugging_face.family import SIDES, Family, read_part
from keras_attn.convert.hugging_face.weights import LastRows, copy_part

FIRST = 2  # rows of the tables of positions before that of position 0


def convert(checkpoint, overrides):
    """Return an `EncoderDecoder` with the weights of a checkpoint."""
    checkpoint.strip("model.")
    drop_copies(checkpoint)
    model = _build(checkpoint.config, overrides)
    copy_weights(checkpoint, model)
    return model


def _build(config, overrides, has_bias=True):
    config.require(normalize_before=False, add_final_layer_norm=False, normalize_embedding=True)
    length = config.size("max_position_embeddings", 1024)
    return build_sides(
        *(config, overrides, config.index("pad_token_id", 1), positions.Learned(length)),
        source_position=positions.Learned(length),
        norm=norms.LayerNorm(1e-5),
        has_bias=has_bias,
    )


def copy_weights(checkpoint, model):
    """Copy the tensors of a model, in either direction."""
    copy_sides(checkpoint, model)
    parts = (model.source_position, model.norm), (model.position, model.target_norm)
    for side, (position, norm) in zip(SIDES, parts, strict=True):
        rows = LastRows(position.table, FIRST)
        checkpoint.transfer(f"{side}.embed_positions.weight", rows)
        copy_part(checkpoint, norm, "", f"{side}.layernorm_embedding")


def options(model):
    """Return the options of `config.json` for a model."""
    return {
        **side_options(model),
        "max_position_embeddings": read_part(model, "position.max_length"),
        "architectures": ["BartForConditionalGeneration"],
    }


FAMILY = Family(
    convert=convert,
    options=options,
    build=lambda config, model: _build(config, {}, has_bias=model.head is not None),
    copy_weights=copy_weights,
    prefix="model.",
    heads=(BIAS,),
    free=("start_id",),  # changes the model only if it is the id of padding
)
