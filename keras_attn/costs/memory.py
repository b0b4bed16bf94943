"""Bytes of a training step: what the forward pass keeps for the backward pass, and states."""

import math
from typing import NamedTuple

import keras

from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.costs.calls import own_weights
from keras_attn.costs.products import (
    attention_inputs,
    attention_tiles,
    searched_keys,
)
from keras_attn.feed_forward import FeedForward, GatedFeedForward, MixtureOfExperts
from keras_attn.layers import MultiHeadAttention
from keras_attn.memory import KVCache
from keras_attn.norms.norm import NoNorm, Norm
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
    trained = _if_trained(call)
    return trained if call.has_gradient else CallBytes(scratch=trained.scratch)


def _if_trained(call):
    layer, output = call.layer, size_of(call.output)
    if isinstance(layer, MultiHeadAttention):
        return _of_attention(call)
    if isinstance(layer, FeedForward):
        return _of_feed_forward(call, layer, rows=1)
    if isinstance(layer, MixtureOfExperts):
        return _of_feed_forward(call, layer.expert, rows=layer.top_k)
    if isinstance(layer, Norm):
        if isinstance(layer, NoNorm):
            return CallBytes()
        # The input in float32, its factors, and the output; and gradients of four products.
        full = math.prod(call.output.shape) * max(4, item_size(call.output.dtype))
        return CallBytes(full * (1 + (output < full)) + output, 0, 3 * full)
    if isinstance(layer, Residual):
        return CallBytes(output)  # the sum
    return CallBytes(output) if own_weights(layer) else CallBytes()


def size_of(x):
    """Return the bytes of a symbolic tensor."""
    return math.prod(x.shape) * item_size(x.dtype)


def item_size(dtype):
    """Return the bytes of one number of a dtype."""
    dtype = keras.backend.standardize_dtype(dtype)
    if dtype == "string":
        return 24  # of TensorFlow, with up to 22 characters
    return 1 if dtype == "bool" else int("".join(filter(str.isdigit, dtype.split("_")[0]))) // 8


def _of_attention(call):
    prepared = attention_inputs(call)
    inputs, implementation = prepared.inputs, prepared.implementation
    heads = query, key, value = [size_of(x) for x in (inputs.query, inputs.key, inputs.value)]
    # Queries, keys and values by head, and the heads' output, merged for the last product, whose
    # own output becomes the residual's sum.
    kept = sum(heads) + query * inputs.value.shape[3] // inputs.query.shape[3]
    if implementation == "fused":  # which keeps no scores
        return CallBytes(kept)
    if implementation == "linear":
        return CallBytes(kept + sum(heads), 0, sum(heads))
    size = item_size("float64" if call.layer.compute_dtype == "float64" else "float32")
    searched = math.prod(searched_keys(call)) * size
    tiles = attention_tiles(prepared)
    pairs = [t.at_once * t.length * t.num_keys * size for t in tiles]
    by_distance = [t.at_once * _num_distances(t, inputs) * size for t in tiles]
    if implementation == "blockwise" and tiles[0].is_loop:
        kept += int((tiles[0].key_copies - 1) * (key + value))
        # Weights, their gradient and that of the logits; of keys and values each group's gradient,
        # of ever more keys, the sum of the group that runs and a tile's part of it.
        key_bytes = (key + value) * (len(tiles) + 1) // 2 + 2 * (key + value)
        tile_bytes = max(3 * x + 2 * y for x, y in zip(pairs, by_distance, strict=True))
        return CallBytes(kept, 0, max(tile_bytes + key_bytes + query, searched))
    in_half = item_size(call.layer.compute_dtype) < size
    scores = sum(pairs) * (3 if in_half else 2) // 2
    return CallBytes(kept + scores, scores, max(2 * max(pairs) + 2 * max(by_distance), searched))


def _num_distances(tile, inputs):
    """Return how many logits of distances a head has in a tile, before they are put in place."""
    size, head_dim = (tile.length, tile.num_keys), inputs.query.shape[3]
    if tile.num_distances is None or not inputs.score.uses_positions:
        return 0
    products = inputs.score.products_of_tile(*size, head_dim, True)
    return products // head_dim - math.prod(size)


def _of_feed_forward(call, layer, rows):
    width = layer.intermediate_dim * item_size(call.layer.compute_dtype)
    hidden = rows * math.prod(call.output.shape[:-1]) * width
    simple = keras.activations.get("relu"), keras.activations.get("linear")
    copies = 4 if isinstance(layer, GatedFeedForward) else 1 if layer.activation in simple else 3
    if layer.chunks > 1:
        return CallBytes(0, 0, 2 * copies * hidden // layer.chunks)
    return CallBytes(copies * hidden, 0, hidden)  # the output becomes the residual's sum


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


def optimizer_bytes(model, optimizer, of=size_of):
    """Return the bytes of the variables that an optimizer has for a model, one of each shape."""
    if optimizer is None:
        return 0
    optimizer = keras.optimizers.get(optimizer)
    optimizer = type(optimizer).from_config(optimizer.get_config())
    small = keras.Variable(keras.ops.zeros((2, 3)))  # stands for a weight of any shape
    optimizer.build([small])
    slots = sum(tuple(variable.shape) == (2, 3) for variable in optimizer.variables)
    return slots * variable_bytes(model.trainable_variables, of)


def variable_bytes(variables, of=size_of):
    """Return the bytes of variables; `of` tells those of one, by default of the whole of it."""
    return sum(of(variable) for variable in variables)


def cast_bytes(model, of=size_of):
    """Return the bytes of the weights as layers in half precision read them."""
    total = 0
    for layer in flatten_layers(model):
        size = item_size(layer.compute_dtype)
        # Frozen ones too: the gradient of the input needs them.
        copied = [w for w in own_weights(layer) if "float" in w.dtype and item_size(w.dtype) > size]
        total += sum(size * of(w) // item_size(w.dtype) for w in copied)
    return total


def loss_bytes(model, length, batch_size):
    """Return the bytes of the outputs that a loss reads, in float32 at least: of the logits alone.

    A model that names no logits has a loss of each output.
    """
    outputs = {}
    if isinstance(model.output, dict):
        outputs = {"logits": model.output["logits"]} if "logits" in model.output else model.output
    total = 0
    for x in keras.tree.flatten(outputs or model.outputs):
        numbers = batch_size * math.prod(size or length for size in x.shape[1:])
        total += numbers * max(4, item_size(x.dtype))
    return total


def peak_of_activations(calls, loss, parts=lambda call: 1):
    """Return the most bytes that activations take in a training step.

    The backward pass runs from the last call to the first, and frees what each has kept. A device
    holds one of `parts(call)` of what a call keeps and of its scratch, and its whole output. Beside
    the logits a loss of `loss_bytes` keeps their probabilities, and holds their gradient.
    """

    def entry(call):
        """Return the bytes that a call keeps, and those that only its gradient holds."""
        held, count = bytes_of(call), parts(call)
        return call.repeats * held.kept // count, held.scratch // count + size_of(call.output)

    entries, inner = [], {}
    for call in calls:
        depth = next((x for x in call.inside if getattr(x, "num_recomputations", 0)), None)
        if depth is not None:
            inner.setdefault(id(depth), []).append(call)
        elif id(call.layer) in inner:
            # Of recomputed blocks one has its activations at a time.
            blocks, others = _by_block(call.layer, inner.pop(id(call.layer)))
            block = max(map(_peak, ([entry(x) for x in block] for block in blocks)))
            kept = call.layer.num_kept_states * size_of(call.output) if call.has_gradient else 0
            entries += [(kept, block), *map(entry, others)]
        else:
            entries.append(entry(call))
    entries.append((loss // parts(calls[-1]), loss // parts(calls[-1])))
    return _peak(entries) + sum(size_of(x) for x in _segments(calls))


def _peak(entries):
    held = peak = 0
    for kept, scratch in entries:
        held += kept
        peak = max(peak, held + scratch)
    return peak


def _by_block(depth, calls):
    """Return the calls of each block of a depth, and those of no block, as of its closing norm."""
    blocks = depth.blocks[:1] if depth.shares_block else depth.blocks
    groups, others = [], calls
    for block in blocks:
        layers = {id(layer) for layer in flatten_layers(block)}
        groups.append([call for call in calls if id(call.layer) in layers])
        others = [call for call in others if id(call.layer) not in layers]
    if depth.shares_block:  # one step after another
        length = len(groups[0]) // depth.num_layers
        groups = [groups[0][:length]]
    return groups, others


def _segments(calls):
    """Return what keys are made of that no layer has returned, as a memory and the sequence."""
    known = {id(call.output) for call in calls}
    attention = [call for call in calls if isinstance(call.layer, MultiHeadAttention)]
    inputs = {id(call.value): call.value for call in attention if call.needs_gradient}
    return [value for key, value in inputs.items() if key not in known]
