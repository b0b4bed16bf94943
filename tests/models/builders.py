"""Each builder with tiny sizes, its model with random weights, and inputs for it."""

import functools
import inspect

import numpy as np
import oracles
from models import formulas
from models.formulas import T, V

from keras_attn import models
from keras_attn.layers import SeriesBins
from keras_attn.positions import YaRN

LONG, TWO = {"max_length": 16}, {"num_layers": 2}
# Arguments beside the sizes; what follows a builder's name tells its variants apart.
MODELS = {
    "transformer": {"residual": "pre_norm"},
    "universal_transformer": {"depth": "act"},
    "universal_transformer convolution": {"transition": "separable_conv"},
    "bert": LONG,
    "gpt": LONG,
    "deep_char_transformer": LONG,
    "transformer_xl": {"memory_length": T, "clamp_length": 4},
    "transformer_xl adaptive": {"memory_length": 3, "cutoffs": [4, 9], "div_val": 2},
    "compressive_transformer": {"memory_length": 2, "compressed_length": 3, "rate": 2},
    "adaptive_span_transformer": {"max_span": 5, "ramp": 2},
    "sparse_transformer": {"image_shape": (4, 4, 1)},
    "sparse_transformer per head": {
        **{"image_shape": (4, 4, 1), "summary": 2, "factors": "per_head", "key_dim": 2}
    },
    "reformer": {
        **TWO,
        **{"axial_shape": (4, 4), "attention": ("lsh", "local"), "local_length": 3},
        **{"chunk_length": 16, "across_buckets": True, "feed_forward_chunks": 2},
    },
    "image_transformer": {"image_shape": (1, T, 1)},
    "image_transformer pixels": {"image_shape": (1, T, 1), "num_mixtures": 3},
    "super_resolution_transformer": {
        **{"source_shape": (1, T, 1), "image_shape": (1, T, 1), "num_encoder_layers": 1}
    },
    "gtrxl": {"state_shape": 5, "heads": {"logits": V}, "memory_length": 3},
    "llama": {"num_key_value_heads": 1},
    "mistral": {"window": 3},
    "mixtral": {"num_experts": 3},
    "gpt_oss": {
        **TWO,
        **{"num_key_value_heads": 1, "key_dim": 6, "window": 3, "num_experts": 5, "top_k": 2},
        **{"scaling": YaRN(8, 70, truncate=False)},
    },
    "gemma": {**TWO, "key_dim": 6, "num_key_value_heads": 1, "window": 3},
    "t5": {"key_dim": 5},
    "t5 gated": {"key_dim": 5, "gated": True, "tied": False},
    "chronos_t5": {"key_dim": 5, "bins": SeriesBins(V, -3, 3)},
    "switch_transformer": {**TWO, "num_experts": 5},
    "modern_bert": {**TWO, "window": 4},
    "longformer": {**LONG, "window": 2, "num_segments": 2},
    "big_bird": {**LONG, "block_length": 1, "num_random": 2},
    "vit": {"num_classes": V, "image_shape": (4, 6, 1), "patch_size": 2},
    "perceiver": {**LONG, "num_latents": 4, "latent_dim": 10, "key_dim": 5},
    "decision_transformer": {"state_size": 5, "action_size": V, "max_steps": 12},
}
# Token ids of which the second row ends with padding.
# Rows of token ids: one whole, one with padding, and the first with other tokens from 6 on.
CHANGED = np.where(np.arange(T) < 6, formulas.IDS[0], formulas.IDS[0] % (V - 1) + 1)
IDS = np.stack([formulas.IDS[0], np.where(np.arange(T) < 7, formulas.IDS[1], 0), CHANGED])
SOURCES = np.array([[5, 7, 12, 9, 3], [8, 4, 3, 0, 0], [5, 7, 12, 9, 3]], "int32")


def build(name, **more):
    """Return a new model."""
    builder = getattr(models, name.split()[0])
    sizes = {**formulas.SIZES, "num_layers": 1}
    arguments = {**sizes, **MODELS[name], "dropout": 0.0, **more}
    if "vocabulary_size" not in inspect.signature(builder).parameters:
        del arguments["vocabulary_size"]
    return builder(**arguments)


@functools.cache
def new(name):
    """Return the model that all tests share, and the numbers with which its weights began."""
    model = build(name)
    initial = [oracles.numpy_of(weight) for weight in model.weights]
    return formulas.scrambled(model), initial


def built(name):
    return new(name)[0]


@functools.cache
def plain(name):
    """Return the shared model, without its memory."""
    model = built(name)
    is_recurrent = isinstance(model, models.CausalLanguageModel) and model.memory is not None
    return formulas.without_memory(model) if is_recurrent else model


def inputs_of(model):
    """Return all inputs of a model but those of its memory."""
    values = {
        **{"token_ids": IDS, "target_ids": IDS, "source_ids": SOURCES, "segment_ids": IDS % 2},
        **{"states": oracles.random(3, T, 5), "returns": oracles.random(3, T)},
        **{"actions": oracles.random(3, T, V), "images": oracles.random(3, 4, 6, 1)},
    }
    return {name: values[name] for name in model.input if name in values}


@functools.cache
def whole_pass(name):
    """Return the output of the plain model as an array."""
    model = plain(name)
    return np.asarray(model(inputs_of(model)))
