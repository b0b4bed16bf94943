"""Signatures of a LiteRT file: those of a SavedModel that read no text, and steps with a cache."""

import tensorflow as tf

from keras_attn.export._saved_model.writing import _functions_of
from keras_attn.export.signatures.cached_steps import CachedSteps
from keras_attn.export.signatures.compiled_decoding import noise_specs
from keras_attn.export.signatures.images import ImageEnlarger, ImageGenerator
from keras_attn.generation.decoding import get_strategy

# What a server asks for, and what counts steps; a file of LiteRT has one client.
_OTHERS = ("serving_default", "end_tokens", "halting")


def signatures_of(model, options):
    """Return the signatures of a model, a dict of `tf.function`s, and a module of their weights.

    They come in an order in which the outputs of one, such as a cache, can be the inputs of the
    next one.
    """
    functions = _functions_of(model, options)
    signatures = {name: f for name, f in functions.signatures.items() if name not in _OTHERS}
    if functions.decodes:
        strategy, max_length, *_ = options.decoding
        noise = noise_specs(get_strategy(strategy), max_length)
        signatures = dict(CachedSteps(model, options.bos_id).signatures)
        specs = [*functions.ids.input_signature, *noise]
        signatures["generate"] = tf.function(functions.generate, specs, autograph=False)
    elif isinstance(functions, (ImageGenerator, ImageEnlarger)):
        signatures["generate"] = functions.generate_by_noise
    return signatures, functions.make_resources()
