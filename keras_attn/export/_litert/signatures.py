"""Signatures of a LiteRT file: those of a SavedModel that read no text, and steps with a cache."""

from typing import NamedTuple

import tensorflow as tf

from keras_attn.export._saved_model.writing import functions_of
from keras_attn.export.signatures.cached_steps import CachedSteps
from keras_attn.export.signatures.compiled_decoding import noise_specs
from keras_attn.export.signatures.text_model import TextModel
from keras_attn.generation.decoding import get_strategy
from keras_attn.models.model import num_tokens

# What a server asks for, and what counts steps; a file of LiteRT has one client.
_OTHERS = ("serving_default", "end_tokens", "halting")
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
    is_own = TextModel.fits(model, options)
    functions = _own_functions(model, options) if is_own else functions_of(model, options)
    named = {name: f for name, f in functions.signatures.items() if name not in _OTHERS}
    if functions.decodes:
        strategy, max_length, *_ = options.decoding
        noise = noise_specs(get_strategy(strategy), max_length)
        specs = [*functions.ids.input_signature, *noise]
        named = dict(CachedSteps(model, options.bos_id).signatures)
        named["generate"] = tf.function(functions.decode_inline, specs, autograph=False)
    elif getattr(functions, "generate_by_noise", None) is not None:
        named["generate"] = functions.generate_by_noise
    names = ("max_length", "max_source_length")
    limits = [getattr(each, name, None) for each in (model, functions) for name in names]
    limit = min((n for n in limits if n is not None), default=None)
    return Signatures(named, functions.make_resources(), max(1, num_tokens(model)), limit)


def _own_functions(model, options):
    options.check_no_strategy()
    own = {name: getattr(options, name) for name in ("kind", "inputs", "from_logits")}
    return TextModel(model, max_length=options.max_source_length, **own)
