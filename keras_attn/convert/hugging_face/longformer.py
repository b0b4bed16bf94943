"""Longformer: RoBERTa with windows, and second projections for global tokens."""

from keras_attn import layers, models
from keras_attn.convert.hugging_face import bert, roberta
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.family import FIRST, Family, read_options, read_part
from keras_attn.convert.hugging_face.text_classifier import (
    build_alike,
    head_options,
    pooling_files,
)

BLOCK = {
    **bert.BLOCK,
    "attention.global_query": "attention.self.query_global",
    "attention.global_key": "attention.self.key_global",
    "attention.global_value": "attention.self.value_global",
}
NUM_GLOBAL = f"{FIRST}.attention.num_global"


def convert(checkpoint, overrides):
    """Return a `MaskedLanguageModel` or a `Classifier` with the weights of a checkpoint.

    As by default in transformers, the first token of a classifier is global, and else none is.
    """
    checkpoint.strip("longformer.")
    num_global = int(checkpoint.has(f"{roberta.CLASSIFIER[1]}.weight"))
    given = {**arguments(checkpoint.config), "num_global": num_global}
    model = roberta.read_model(checkpoint, models.longformer, given, overrides)
    copy_weights(checkpoint, model)
    return model


def arguments(config):
    """Return the arguments of `models.longformer` for a configuration, but for `num_global`."""
    found = {**roberta.arguments(config), "global_projections": True}
    del found["activation"]  # that of RoBERTa
    found["window"] = windows(config, found["num_layers"])
    return found


def windows(config, num_layers):
    """Return the width of each layer's window."""
    found = config.get("attention_window", 512)
    found = found if isinstance(found, list) else [found] * num_layers
    are_even = all(isinstance(width, int) and width > 0 and width % 2 == 0 for width in found)
    if len(found) != num_layers or not are_even:
        config.refuse(
            "`attention_window` in config.json must be an even number above 0, or one for each of "
            f"{num_layers} layers, not {config.get('attention_window')!r}."
        )
    return found


def copy_weights(checkpoint, model):
    """Copy the tensors of a model, in either direction."""
    roberta.copy_weights(checkpoint, model, BLOCK)


def fits(model):
    """Return True for an encoder whose global tokens have projections of their own."""
    first = next(iter(getattr(model.encoder, "blocks", ())), None)
    return isinstance(getattr(first, "attention", None), layers.GlobalAttention)


def options(model):
    """Return the options of `config.json` for a model; each call gives the global tokens there."""
    found = {
        **read_options(model, bert.OPTIONS),
        "hidden_act": activation_name(read_part(model, f"{FIRST}.feed_forward.activation")),
        "attention_window": [_window(block) for block in model.encoder.blocks],
        **head_options(model, "Longformer"),
    }
    if model.embedding.pad_id is None:
        raise ValueError(
            "A Longformer of transformers must have an id of padding, after which positions are "
            "counted. Received: model.embedding.pad_id=None."
        )
    found["max_position_embeddings"] += model.embedding.pad_id + 1
    return found


def _window(block):
    """Return the width of the window in a union of patterns, or of a layer without one."""
    local = read_part(block, "attention.pattern.first")
    return 2 * (read_part(local, "window") - 1)


def _build(config, model):
    masked = models.longformer(**arguments(config), num_global=read_part(model, NUM_GLOBAL))
    return build_alike(masked, model, "tanh")


FAMILY = Family(
    convert=convert,
    options=options,
    build=_build,
    copy_weights=copy_weights,
    prefix="longformer.",
    heads=("lm_head.", "classifier"),
    files=pooling_files,
)
