"""Signatures of a LiteRT file: those of a SavedModel that read no text, and steps with a cache."""

from typing import NamedTuple

import tensorflow as tf

from keras_attn.export._saved_model.writing import functions_of
from keras_attn.export.signatures.cached_steps import CachedSteps
from keras_attn.export.signatures.compiled_decoding import noise_specs
from keras_attn.export.signatures.model_functions import ModelFunctions, length_mask
from keras_attn.export.signatures.text_model import TextModel
from keras_attn.generation.decoding import get_strategy
from keras_attn.models.model import num_tokens
from keras_attn.models.state_models import TrajectoryModel

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


class TrajectoryFunctions(ModelFunctions):
    """Model of stored episodes as a graph function, from episodes to the action of each step.

    Args:
        model: a `TrajectoryModel`.
    """

    def __init__(self, model):
        super().__init__(model)
        self._model, self.max_length = model, model.embedding.max_steps
        read = [model.input[name] for name in ("returns", "states", "actions")]
        specs = [tf.TensorSpec(x.shape, x.dtype, x.name) for x in read]
        lengths = tf.TensorSpec([None], tf.int32, "lengths")
        self.act = tf.function(self._act, [*specs, lengths], autograph=False)

    @property
    def signatures(self):
        return {"act": self.act}

    def _act(self, returns, states, actions, lengths):
        """Map returns [B, T], states [B, T, S] and earlier actions to the `actions` [B, T, A]."""
        inputs = {"returns": returns, "states": states, "actions": actions}
        return {"actions": self._model({**inputs, "padding_mask": length_mask(returns, lengths)})}


def signatures_of(model, options):
    """Return the `Signatures` of a model for the `ExportOptions`."""
    functions = _functions_of(model, options)
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


def _functions_of(model, options):
    if isinstance(model, TrajectoryModel):
        options.check_no_strategy()
        return TrajectoryFunctions(model)
    if not TextModel.fits(model, options):
        return functions_of(model, options)
    options.check_no_strategy()
    own = {name: getattr(options, name) for name in ("kind", "inputs", "from_logits")}
    return TextModel(model, max_length=options.max_source_length, **own)
