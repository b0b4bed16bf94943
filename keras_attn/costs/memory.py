"""Bytes of a training step: what the forward pass keeps for the backward pass, and states."""

import math
from typing import NamedTuple

import keras

from keras_attn.costs.products import attention_inputs, attention_tiles
from keras_attn.feed_forward import FeedForward, GatedFeedForward, MixtureOfExperts
from keras_attn.layers import MultiHeadAttention
from keras_attn.memory import KVCache
from keras_attn.norms.norm import Norm
from keras_attn.residuals import Residual


class CallBytes(NamedTuple):
    """Bytes of a call.

    Attributes:
        kept: int. Kept for the backward pass.
        scores: int. The part of `kept` that is a matrix of scores.
        scratch: int. Held while the call or its gradient runs, and then let go.
    """

    kept: int = 0
    scores: int = 0
    scratch: int = 0


def bytes_of(call):
    """Return the `CallBytes` of a `Call`, once."""
    layer, output = call.layer, size_of(call.output)
    if isinstance(layer, MultiHeadAttention):
        return _of_attention(call)
    if isinstance(layer, FeedForward):
        return _of_feed_forward(call, layer, rows=1)
    if isinstance(layer, MixtureOfExperts):
        return _of_feed_forward(call, layer.expert, rows=layer.top_k)
    if isinstance(layer, (Norm, Residual)) or layer.weights and not layer.trainable_variables:
        return CallBytes(output)
    is_logits = call.output.dtype == "float32" and hasattr(layer, "vocabulary_size")
    if is_logits and len(call.arguments["inputs"].shape) == len(call.output.shape):
        return CallBytes(2 * output, 0, output)  # logits and their softmax, and the gradient
    return CallBytes(output) if layer.weights else CallBytes()


def size_of(x):
    """Return the bytes of a symbolic tensor."""
    return math.prod(x.shape) * item_size(x.dtype)


def item_size(dtype):
    """Return the bytes of one number of a dtype."""
    dtype = keras.backend.standardize_dtype(dtype)
    return 1 if dtype == "bool" else int("".join(filter(str.isdigit, dtype.split("_")[0]))) // 8


def _of_attention(call):
    inputs, plan, pattern = attention_inputs(call)
    heads = [size_of(x) for x in (inputs.query, inputs.key, inputs.value)]
    # Queries, keys and values by head, the heads' output, merged for the last product, and it.
    output = heads[0] * inputs.value.shape[3] // inputs.query.shape[3]
    kept = sum(heads) + 2 * output + size_of(call.output)
    if plan == "linear":
        return CallBytes(kept + sum(heads), 0, sum(heads))
    size = item_size("float64" if call.layer.compute_dtype == "float64" else "float32")
    tiles = attention_tiles(inputs, plan, pattern)
    pairs = [t.at_once * t.length * t.num_keys * size for t in tiles]
    if plan == "blockwise" and tiles[0].is_loop:
        return CallBytes(kept + sum(heads), 0, 4 * max(pairs) + 2 * sum(heads))
    in_half = item_size(call.layer.compute_dtype) < size
    scores = sum(pairs) * (3 if in_half else 2) // 2
    return CallBytes(kept + scores, scores, 2 * max(pairs))


def _of_feed_forward(call, layer, rows):
    width = layer.intermediate_dim * item_size(call.layer.compute_dtype)
    hidden = rows * math.prod(call.output.shape[:-1]) * width
    simple = keras.activations.get("relu"), keras.activations.get("linear")
    copies = 4 if isinstance(layer, GatedFeedForward) else 1 if layer.activation in simple else 3
    if layer.chunks > 1:
        return CallBytes(size_of(call.output), 0, 2 * copies * hidden // layer.chunks)
    return CallBytes(copies * hidden + size_of(call.output), 0, hidden)


def cache_bytes(call):
    """Return the bytes of the keys and values that decoding keeps, and reads at each step."""
    layer, query, value = call.layer, call.arguments["query"], call.value
    if not layer.pattern.causal:
        if value is query:
            return 0  # an encoder's
        numbers = math.prod(value.shape[:2]) * layer.num_key_value_heads
        return numbers * (layer.key_dim + layer.value_dim) * item_size(layer.compute_dtype)
    state = _EmptyCache(layer, query.shape[0], query.shape[1]).compute_output_spec()
    return sum(size_of(x) for x in keras.tree.flatten(state) if len(x.shape) > 0)


class _EmptyCache(keras.Operation):
    def __init__(self, layer, batch_size, length):
        super().__init__()
        self.arguments, self.cache = (layer, batch_size), KVCache(length)

    def call(self):
        state = self.cache.initial(*self.arguments)
        return {name: x for name, x in state.items() if x is not None}


def optimizer_bytes(model, optimizer):
    """Return the bytes of the variables that an optimizer has for a model, one of each shape."""
    if optimizer is None:
        return 0
    optimizer = keras.optimizers.get(optimizer)
    optimizer = type(optimizer).from_config(optimizer.get_config())
    small = keras.Variable(keras.ops.zeros((2, 3)))  # stands for a weight of any shape
    optimizer.build([small])
    slots = sum(tuple(variable.shape) == (2, 3) for variable in optimizer.variables)
    return slots * variable_bytes(model.trainable_variables)


def variable_bytes(variables):
    """Return the bytes of variables."""
    return sum(size_of(variable) for variable in variables)


def peak_of_activations(calls):
    """Return the most bytes that activations take in a training step."""
    costs = [(call, bytes_of(call)) for call in calls]
    kept = sum(call.repeats * b.kept for call, b in costs if not call.recomputations)
    scratch = max((b.scratch for _, b in costs), default=0)
    for call in calls:
        depth = call.layer
        if getattr(depth, "num_recomputations", 0):
            # Of recomputed blocks one has its activations at a time.
            blocks = sum(b.kept for inner, b in costs if depth in inner.inside)
            kept += depth.num_kept_states * size_of(call.output) + blocks // depth.num_layers
    return kept + scratch
