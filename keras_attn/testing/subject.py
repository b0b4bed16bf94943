"""The layer under test: example inputs for it, copies of it, and calls of the copies."""

import inspect

import keras
import numpy as np
from keras import ops

from keras_attn.scores import Additive, DotProduct
from keras_attn.testing.numerics import (
    has_length,
    is_float,
    random,
    round_to_8_bits,
    to_array,
    to_arrays,
)

BATCH = 2


class NotApplicable(Exception):
    """Raised by a check that does not apply to the layer; the message is the reason."""


class Subject:
    """A layer under test, with arrays as example inputs.

    Checks work on copies, whose weights are moved off their initial values: a bias of zeros or a
    scale of ones would hide mistakes. The layer itself is only built, if it is not yet.
    """

    def __init__(self, layer, inputs):
        self.layer = layer
        inputs = (np.asarray(x) for x in inputs)
        self.inputs = tuple(round_to_8_bits(x) if is_float(x) else x for x in inputs)
        self.config = layer.get_config()
        self._weights = None
        if not layer.built:
            self.call(layer, *self.inputs)

    def accepts(self, name):
        """True if the layer's `call` has an argument of that name."""
        return name in inspect.signature(self.layer.call).parameters

    def masks(self, inputs):
        """Masks by argument name that an ordinary call on `inputs` gives."""
        return {}

    def copy(self, policy="float32", **changes):
        """Build a layer of the same configuration under a dtype policy, with `changes`."""
        own = keras.saving.serialize_keras_object(self.layer.dtype_policy)
        config = _with_policy({**self.config, **changes}, own, policy)
        before = keras.config.dtype_policy()
        keras.config.set_dtype_policy(policy)  # that of sublayers created without a dtype
        try:
            layer = type(self.layer).from_config(config)
            self.call(layer, *self.inputs)
        finally:
            keras.config.set_dtype_policy(before)
        if self._weights is None:
            _randomize(layer.trainable_weights)
            self._weights = layer.get_weights()
        layer.set_weights(self._weights)
        return layer

    def copy_with_dropout(self):
        """Build a copy with dropout; None if the layer has none."""
        has_dropout = "dropout" in self.config and self.accepts("training")
        return self.copy(dropout=0.4) if has_dropout else None

    def call(self, layer, *inputs, training=False, **arguments):
        """Call a copy; the results are a list of arrays."""
        return to_arrays(self.raw_call(layer, *inputs, training=training, **arguments))

    def raw_call(self, layer, *inputs, training=False, **arguments):
        """Call a copy; the results are nested tensors, as the layer returns them."""
        if self.accepts("training"):
            arguments["training"] = training
        return layer(*(ops.convert_to_tensor(x) for x in inputs), **arguments)

    def call_with_masks(self, layer, inputs):
        """Call a copy with the masks that `model` takes."""
        return self.call(layer, *inputs, **self.masks(inputs))

    def model(self, layer, jit_compile=False, **arguments):
        """Compile a functional model around the layer, of unknown batch and length."""
        masks = self.masks(self.inputs)
        inputs = [keras.Input(_unknown_shape(x), dtype=str(x.dtype)) for x in self.inputs]
        masks = {name: keras.Input(_unknown_shape(x), dtype="bool") for name, x in masks.items()}
        model = keras.Model([*inputs, *masks.values()], layer(*inputs, **masks, **arguments))
        model.compile(jit_compile=jit_compile)
        return model

    def model_inputs(self, inputs):
        """Inputs of `model`: the layer's and its masks."""
        return [*inputs, *self.masks(inputs).values()]

    def predict(self, model, inputs):
        """Run the model; the results are a list of arrays."""
        return to_arrays(model.predict_on_batch(self.model_inputs(inputs)))

    def inputs_of_two_sizes(self):
        """The inputs, and parts of them of another batch size and length."""
        smaller = (x[:1, : -(-x.shape[1] // 2)] if has_length(x) else x[:1] for x in self.inputs)
        return self.inputs, tuple(smaller)


class AttentionSubject(Subject):
    """An attention layer under test, which should follow `pattern`, with `length` keys."""

    def __init__(self, layer, pattern, hidden_dim, length):
        self.pattern, self.hidden_dim = pattern, hidden_dim
        self.query_length = length // 2
        self.query = random(BATCH, self.query_length, hidden_dim)
        self.value = random(BATCH, length, hidden_dim, seed=1)
        super().__init__(layer, (self.query, self.value))

    def key_mask(self, value):
        """Padding mask (B, S) for `value`: the last two keys of the first row are padding."""
        mask = np.ones(value.shape[:2], bool)
        mask[0, -2:] = False
        return mask

    def masks(self, inputs):
        query, value = inputs
        return self.mask_arguments(query, value, self.key_mask(value))

    def mask_arguments(self, query, value, key_mask=None, pair_mask=None):
        """Arguments of `call` for a padding mask (B, S) and a mask of pairs (B, T, S)."""
        arguments = {}
        if key_mask is not None and self.accepts("value_mask"):
            arguments["value_mask"], key_mask = key_mask, None
        if key_mask is not None or pair_mask is not None:
            self.require_argument("attention_mask")
            mask = np.ones((value.shape[0], query.shape[1], value.shape[1]), bool)
            mask &= True if key_mask is None else key_mask[:, None]
            arguments["attention_mask"] = mask & (True if pair_mask is None else pair_mask)
        return arguments

    def attend(
        self, layer, query, value, key=None, *, key_mask=None, pair_mask=None, causal=False,
        scores=False, training=False,
    ):  # fmt: skip
        """Call a copy; the result is the output, or with `scores` a pair (output, scores)."""
        arguments = self.mask_arguments(query, value, key_mask, pair_mask)
        if key is not None:
            self.require_argument("key")
            arguments["key"] = ops.convert_to_tensor(key)
        for name, flag in (("use_causal_mask", causal), ("return_attention_scores", scores)):
            if flag:
                self.require_argument(name)
                arguments[name] = True
        results = self.call(layer, query, value, training=training, **arguments)
        return tuple(results) if scores else results[0]

    def require_argument(self, name):
        if not self.accepts(name):
            raise NotApplicable(f"the layer takes no `{name}`")

    def require_position_pattern(self):
        if not self.pattern.is_of_positions:
            raise NotApplicable("the pattern is not a function of positions alone")

    def pattern_mask(self, query_length, num_keys, causal=False):
        """The pattern's mask, bool (N or 1, T, S): the queries are the last T of S positions."""
        keys = np.arange(num_keys)
        queries = keys[num_keys - query_length :]
        allowed = ops.convert_to_numpy(self.pattern.allowed(queries, keys))
        past = keys <= queries[:, None] if causal else np.ones((query_length, num_keys), bool)
        return past & (allowed if allowed.ndim == 3 else allowed[None])

    def accepts_key_mask(self):
        """True if `mask_arguments` can express a padding mask."""
        return self.accepts("value_mask") or self.accepts("attention_mask")

    def causal_flags(self):
        """Values of `use_causal_mask` that make a difference."""
        has_flag = self.accepts("use_causal_mask") and not self.pattern.causal
        return [False, True] if has_flag else [False]

    def score_flags(self):
        """Values of `return_attention_scores` that the layer accepts."""
        return [False, True] if self.accepts("return_attention_scores") else [False]

    def ignores_positions(self):
        """True if equal keys are known to have equal scores at any position."""
        score = getattr(self.layer, "score", None)
        is_of_content = score is None or isinstance(score, (Additive, DotProduct))
        return is_of_content and position_of_heads(self.layer) is None


def position_of_heads(layer):
    """The position layer that transforms projected queries and keys; None without one."""
    position = getattr(layer, "position", None)
    return position if getattr(position, "acts_on_heads", False) else None


def norms_of_heads(layer):
    """The norms of projected queries and of keys; None without them."""
    norm = getattr(layer, "qk_norm", None)
    return norm, getattr(layer, "key_norm", None) or norm


def get_state(layer):
    """All variables of a layer as arrays, with the state of its random seeds."""
    return [to_array(variable) for variable in layer.variables]


def set_state(layer, arrays):
    for variable, value in zip(layer.variables, arrays, strict=True):
        variable.assign(value)


def _randomize(weights):
    """Assign reproducible random values, centred on a constant initial value."""
    for index, weight in enumerate(weights):
        initial = to_array(weight)
        spread = 0.3 if initial.ndim < 2 else initial.shape[0] ** -0.5
        value = random(*initial.shape, seed=index + 1, scale=spread)
        if initial.size and (initial == initial.flat[0]).all():
            value = initial + value  # a bias, or a scale that starts as one
        if weight.constraint is not None:
            value = to_array(weight.constraint(ops.convert_to_tensor(value)))
        weight.assign(round_to_8_bits(value))


def _unknown_shape(x):
    """Shape of an input of unknown length, without the batch."""
    if x.dtype == bool:
        return (None,) * (x.ndim - 1)
    return (None, *x.shape[2:]) if has_length(x) else x.shape[1:]


def _with_policy(config, own, policy):
    """Replace the layer's own dtype policy at every depth of a configuration."""
    if isinstance(config, dict):
        return {
            key: policy
            if key == "dtype" and value in (own, own["config"].get("name"))
            else _with_policy(value, own, policy)
            for key, value in config.items()
        }
    if isinstance(config, (list, tuple)):
        return type(config)(_with_policy(value, own, policy) for value in config)
    return config
