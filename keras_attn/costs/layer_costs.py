"""The costs of each layer, from the calls of a model."""

import functools
import math

import keras
import numpy as np
from keras import ops

from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.costs.calls import counts_itself, own_kernels, own_weights
from keras_attn.costs.explanation import LayerCost, MemoryCost, Reach, in_bytes
from keras_attn.costs.memory import (
    bytes_of,
    cache_bytes,
    cast_bytes,
    optimizer_bytes,
    peak_of_activations,
    variable_bytes,
)
from keras_attn.costs.products import products_of
from keras_attn.layers import MultiHeadAttention
from keras_attn.scores import Bias, Score

_KERAS_ATTENTION = keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention
# The pairs of a longer input are too many to follow one by one.
MOST_POSITIONS = 2048


def layer_costs(model, calls):
    """Return a list of the `LayerCost`s of all layers with weights or products."""
    totals = {}
    for call in calls:
        products, held = products_of(call), bytes_of(call)
        flops = (2 * x for x in products)
        numbers = [call.repeats * x for x in (*flops, held.kept, held.scores)]
        before = totals.get(id(call.layer), [0] * len(numbers))
        totals[id(call.layer)] = [x + y for x, y in zip(before, numbers, strict=True)]
    caches, most_of, keys = _caches(calls), functools.cache(most_keys), {}
    for call in self_attention(calls):
        lengths = call.arguments["query"].shape[1], call.num_keys
        keys[id(call.layer)] = most_of(call.layer.pattern, *lengths)
    costs, order = [], {key: place for place, key in enumerate(totals)}
    for layer, parameters in _parameters(model):
        numbers = totals.get(id(layer), ())
        if parameters or any(numbers):
            numbers = [*(numbers or [0] * 4), caches.get(id(layer), 0)]
            most = keys.get(id(layer))
            cost = LayerCost(layer.path or layer.name, _kind(layer), parameters, *numbers, most)
            costs.append((order.get(id(layer), len(order)), cost))
    return [cost for _, cost in sorted(costs, key=lambda pair: pair[0])]


def self_attention(calls):
    """Return the calls of attention layers to their own sequence."""
    layers = _attention(calls)
    return [c for c in layers if c.layer.pattern.causal or c.arguments["query"] is c.value]


def reach(calls):
    """Return the `Reach` of the decoder's layers, or of the encoder's if there is no other."""
    attention = self_attention(calls)
    attention = [call for call in attention if call.layer.pattern.causal] or attention
    patterns = [call.layer.pattern for call in attention for _ in range(call.repeats)]
    steps = sum(call.repeats for call in calls if any(products_of(call)))
    if not patterns:
        return Reach(None, None, steps)
    return reach_of(patterns, max(call.num_keys for call in attention), steps)


def memory_cost(model, calls, batch_size, optimizer):
    """Return the `MemoryCost` of a model."""
    weights = variable_bytes(model.weights)
    gradients = variable_bytes(model.trainable_variables)
    slots = optimizer_bytes(model, optimizer)
    caches = sum(_caches(calls).values())
    read = sum(call.repeats * cache_bytes(call) for call in _attention(calls))
    training = weights + slots + gradients + cast_bytes(model) + peak_of_activations(calls)
    per_token = (weights + read) // batch_size
    return MemoryCost(weights, gradients, slots, training, weights + caches, per_token)


def _attention(calls):
    return [call for call in calls if isinstance(call.layer, MultiHeadAttention)]


def _caches(calls):
    """Return the bytes of the cache of each attention layer, by the layer's id.

    The steps of a shared block have keys of their own, and share those of the other sequence.
    """
    sizes = {}
    for call in _attention(calls):
        size, before = cache_bytes(call), sizes.get(id(call.layer), 0)
        has_own = call.layer.pattern.causal
        sizes[id(call.layer)] = before + call.repeats * size if has_own else max(before, size)
    return sizes


def shortages(cost, devices, memory):
    """Return sentences on what does not fit into `memory`, bytes or None."""
    needs = {"Training": cost.training, "Decoding": cost.decoding}
    if devices is not None:
        needs = {"Training": devices.held}
    return [
        f"{name} does not fit: it needs about {in_bytes(need)} of {in_bytes(memory)}."
        for name, need in needs.items()
        if memory is not None and need > memory
    ]


def _parameters(model):
    """Yield each layer that counts itself or has weights of its own, and its number of weights."""
    layers, inside, seen = flatten_layers(model), {}, set()
    for layer in layers:
        if counts_itself(layer):
            parts = flatten_layers(layer)
            inside.update({id(x): layer for x in parts if not counts_itself(x)})
    for layer in layers:
        if id(layer) in inside:
            continue
        weights = own_weights(layer)
        if counts_itself(layer):
            parts = flatten_layers(layer)
            weights = [w for x in parts if x is layer or id(x) in inside for w in own_weights(x)]
        new = {id(w): math.prod(w.shape) for w in weights if id(w) not in seen}
        seen.update(new)
        yield layer, sum(new.values())


def _kind(layer):
    pattern = getattr(layer, "pattern", None)
    name = type(layer).__name__
    return name if pattern is None else f"{name}, {pattern!r}"


def notes(calls):
    """Return sentences on users' layers and scores that do not count their own products."""
    by_kind = {}
    for call in calls:
        kind = type(call.layer)
        if isinstance(call.layer, _KERAS_ATTENTION):
            by_kind[kind] = f"{kind.__name__} of Keras is counted without its scores."
        if isinstance(call.layer, keras.layers.RNN):
            by_kind[kind] = f"{kind.__name__} is counted for a step or two, not for each position."
        if _is_of_users(kind) and not counts_itself(call.layer):
            has_kernels = bool(own_kernels(call.layer))
            how = "counted by the kernels" if has_kernels else "not counted"
            by_kind[kind] = f"{kind.__name__} is {how}."
        for kind in map(type, _scores_in(getattr(call.layer, "score", None))):
            is_plain = getattr(kind, "products_of_tile", None) is Score.products_of_tile
            if is_plain and _is_of_users(kind) and not issubclass(kind, Bias):
                by_kind[kind] = f"{kind.__name__} is counted as a dot product."
    return list(by_kind.values())


def _scores_in(score):
    """Yield a score, or those of which it is made."""
    parts = [*getattr(score, "terms", ()), *filter(None, [getattr(score, "score", None)])]
    for part in parts:
        yield from _scores_in(part)
    if not parts:
        yield score


def _is_of_users(kind):
    return kind.__module__.split(".")[0] not in ("keras", "keras_attn")


def reach_of(patterns, length, sequential_operations):
    """Return the `Reach` of self-attention layers with these patterns, in their order."""
    if length > MOST_POSITIONS and not all(pattern.simple_rule for pattern in patterns):
        return Reach(None, None, sequential_operations)
    if all(pattern.simple_rule for pattern in patterns):
        return Reach(length, 1, sequential_operations)
    pairs = {p: allowed_pairs(p, length, length).astype("float32") for p in {*patterns}}
    rows = sorted({0, length // 2, length - 1})
    seen = np.eye(length, dtype=bool)[rows]
    field, path, step, unchanged = None, 0, 0, 0
    while field is None or unchanged < len(patterns):
        # Backwards: the last layer reads the outputs of the one before it.
        matrix = pairs[patterns[-1 - step % len(patterns)]]
        after = seen | (seen.astype("float32") @ matrix > 0)
        step += 1
        if (after == seen).all():
            unchanged += 1
        else:
            unchanged, path = 0, step
        seen = after
        if step == len(patterns):
            field = int(seen.sum(axis=-1).max())
    return Reach(field, path, sequential_operations)


def most_keys(pattern, length, num_keys):
    """Return the most of `num_keys` keys that one of the last `length` positions may attend to.

    It is None if there are too many.
    """
    if pattern.simple_rule:
        return num_keys
    if num_keys > MOST_POSITIONS:
        return None
    return int(allowed_pairs(pattern, length, num_keys).sum(axis=-1).max())


def allowed_pairs(pattern, length, num_keys):
    """Return a bool (T, S): the keys that each query, at the last positions, may attend to.

    Any head counts.
    """
    positions = np.arange(num_keys, dtype="int32")
    allowed = ops.convert_to_numpy(pattern.allowed(positions[-length:], positions))
    return allowed.any(axis=tuple(range(allowed.ndim - 2)))
