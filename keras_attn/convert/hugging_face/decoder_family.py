"""Causal decoders as checkpoints: which family a model is of, and the options of `config.json`."""

import numpy as np

from keras_attn import patterns, residuals
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.decoder import build_decoder, convert_decoder, copy_weights
from keras_attn.convert.hugging_face.family import Family, read_options, read_part
from keras_attn.convert.hugging_face.last_token_classifier import with_classifier
from keras_attn.convert.hugging_face.layer_types import FULL, SLIDING
from keras_attn.convert.hugging_face.rotary import rotary_options
from keras_attn.convert.hugging_face.weights import numbers

FIRST = "depth.blocks.0"
# Of each option of `config.json`, where the model has it.
OPTIONS = {
    "vocab_size": "embedding.vocabulary_size",
    "hidden_size": "embedding.hidden_dim",
    "num_hidden_layers": "depth.num_layers",
    "num_attention_heads": f"{FIRST}.attention.num_heads",
    "num_key_value_heads": f"{FIRST}.attention.num_key_value_heads",
    "head_dim": f"{FIRST}.attention.key_dim",
    "intermediate_size": f"{FIRST}.feed_forward.intermediate_dim",
    "rms_norm_eps": f"{FIRST}.attention_residual.norm.epsilon",
}


def decoder_family(name, read, more, classifier=None, pad_id=None):
    """Return the `Family` of decoders in the manner of Llama.

    Args:
        name: str. Beginning of the names of the classes of transformers.
        read: function from a `Config` to the `Decoder`.
        more: function from the model to options beside those of all decoders.
        classifier: str. Beginning of the name of the classifier; by default `name`.
        pad_id: the id of padding where `config.json` has none; None for none.
    """

    def convert(checkpoint, overrides):
        return convert_decoder(checkpoint, overrides, read(checkpoint.config))

    def options(model):
        return {**_options(model), **more(model), "architectures": [f"{name}ForCausalLM"]}

    def build(config, model):
        decoder = read(config)
        return build_decoder(config, decoder, model.head is None, decoder.pattern)

    family = Family(
        convert=convert,
        options=options,
        build=build,
        copy_weights=lambda checkpoint, model: copy_weights(
            checkpoint, model, read(checkpoint.config)
        ),
        prefix="model.",
        heads=("lm_head",),
        free=("pad_id",),  # padding is at the end, where no token sees it
    )
    return with_classifier(family, classifier or name, pad_id)


def _options(model):
    position = read_part(model, f"{FIRST}.attention.position")
    return {
        **read_options(model, OPTIONS),
        **rotary_options(position),
        "hidden_act": activation_name(read_part(model, f"{FIRST}.feed_forward.activation")),
        "tie_word_embeddings": model.head is None,
    }


def model_type(model):
    """Return the `model_type` of the family whose features a model has; refuse other positions."""
    attention, residual, norm, bias = (
        read_part(model, f"{FIRST}.{path}")
        for path in ("attention", "residual", "residual.norm", "attention.use_bias")
    )
    if attention.position is None:
        raise ValueError(
            "`model` fits no family of checkpoints: a `CausalLanguageModel` must have `Learned` "
            "positions, `Rotary` ones in its attention, the score `Relative` or the depth "
            f"`Reversible`. Received: model.position={model.position!r}, "
            f"attention.score={attention.score!r}, model.depth={type(model.depth).__name__}."
        )
    has_qk_norm = attention.qk_norm is not None
    if type(residual) is residuals.SandwichNorm:
        return "gemma3_text" if has_qk_norm else "gemma2"
    if getattr(norm, "offset", 0.0):
        return "gemma"
    if has_qk_norm:
        return "qwen3"
    if bias and not np.any(numbers(attention.output_bias)):
        return "qwen2"
    return "llama" if model_windows(model)[0] is None else "mistral"


def model_windows(model):
    """Return the number of keys of a query in each layer, None where it is not bounded."""
    paths = [f"depth.blocks.{i}.attention.pattern" for i in range(len(model.depth.blocks))]
    found = [read_part(model, path) for path in paths]
    return [x.window if isinstance(x, patterns.Local) else None for x in found]


def window_options(model):
    """Return the options of layers with a window among those without one."""
    found = model_windows(model)
    sizes = [window for window in found if window is not None]
    return {
        "layer_types": [FULL if window is None else SLIDING for window in found],
        "sliding_window": sizes[0] if sizes else None,
    }
