"""Signatures of a LiteRT file: those of a SavedModel that read no text, and steps with a cache."""

from typing import NamedTuple

import tensorflow as tf

from keras_attn.export.signatures.cached_steps import CachedSteps
from keras_attn.export.signatures.compiled_decoding import at_least_one
from keras_attn.export.signatures.images import ImageEnlarger, ImageGenerator
from keras_attn.export.signatures.selection import functions_of
from keras_attn.export.signatures.series import SeriesForecaster
from keras_attn.generation.decoding import get_strategy
from keras_attn.generation.loop import DecodingOptions, decode
from keras_attn.generation.tokens import ends_of, start_of
from keras_attn.models.model import num_tokens

# What a server asks for, and what counts steps; a file of LiteRT has one client.
_LEFT_OUT = ("serving_default", "end_tokens", "halting")
# Signatures that give the state of the first "step".
_BEFORE_STEPS = ("start", "initial_memory")


class Signatures(NamedTuple):
    """Signatures of a model, and what their examples need.

    The outputs of a function, such as a cache, can be inputs of those after it.
    """

    functions: dict  # of `tf.function`s by name
    resources: object  # a module of their weights
    num_tokens: int  # of ids, from 1 on, that the model certainly has
    max_length: int | None  # most positions of a row; None for no limit

    def only(self, names):
        """Return the signatures with those functions that examples of `names` run."""
        needed = {*names, *(_BEFORE_STEPS if "step" in names else ())}
        functions = {name: f for name, f in self.functions.items() if name in needed}
        return self._replace(functions=functions)


def signatures_of(model, options):
    """Return the `Signatures` of a model for the `ExportOptions`."""
    functions = functions_of(model, options)
    named = {name: f for name, f in functions.signatures.items() if name not in _LEFT_OUT}
    if functions.decodes:
        named = dict(CachedSteps(model, options.bos_id).signatures)
        named["generate"] = _decoding_function(functions, model, options)
    elif isinstance(functions, SeriesForecaster):
        named = {"forecast": functions.by_noise or functions.forecast}
    elif isinstance(functions, (ImageGenerator, ImageEnlarger)):
        noise = _noise_specs(functions.strategy, functions.tokens.length)
        images = [spec for spec in functions.generate.input_signature if spec.name == "images"]
        if noise:
            function = tf.function(functions.images_by_noise, [*images, *noise], autograph=False)
            named["generate"] = function
    names = ("max_length", "max_source_length")
    limits = [getattr(each, name, None) for each in (model, functions) for name in names]
    most = min((n for n in limits if n is not None), default=None)
    return Signatures(named, functions.make_resources(), max(1, num_tokens(model)), most)


def _decoding_function(functions, model, options):
    """Return the function of ids, lengths and the strategy's noise, if it draws any.

    Its loop is built in its own graph, without the operations that LiteRT lacks; `generate` may
    have compiled another.
    """
    strategy, max_length, _, eos_id = options.decoding
    strategy = get_strategy(strategy)
    strategy.check_length(max_length)
    bos_id = start_of(model) if options.bos_id is None else options.bos_id
    loop = DecodingOptions(max_length, bos_id, ends_of(eos_id), True, max_length)

    def decode_by_noise(token_ids, lengths, *noise):
        def decode_rows(ids, lengths):
            own_options = loop._replace(noise=noise[0] if noise else None)
            return decode(model, strategy, own_options, ids, at_least_one(ids, lengths))

        return functions.decode_rows(token_ids, lengths, decode_rows)

    specs = [*functions.ids.input_signature, *_noise_specs(strategy, max_length)]
    return tf.function(decode_by_noise, specs, autograph=False)


def _noise_specs(strategy, max_length):
    """Return a list of the `TensorSpec` of the random numbers that a strategy reads, if any."""
    noise = strategy.noise(max_length, 1)
    if noise is None:
        return []
    return [tf.TensorSpec([max_length, None, *noise.shape[2:]], tf.float32, "noise")]
