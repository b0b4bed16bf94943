"""The costs of each layer, from the calls of a model."""

import functools
import math

import keras
import numpy as np
from keras import ops

from keras_attn.attention.plans import Window
from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.costs.calls import counts_itself, own_kernels, own_weights
from keras_attn.costs.explanation import LayerCost, MemoryCost, Reach, in_bytes
from keras_attn.costs.memory import (
    bytes_of,
    cache_bytes,
    cast_bytes,
    loss_bytes,
    optimizer_bytes,
    peak_of_activations,
    variable_bytes,
)
from keras_attn.costs.products import products_of
from keras_attn.layers import MultiHeadAttention
from keras_attn.patterns import Local
from keras_attn.patterns.causal import make_causal
from keras_attn.scores import Bias, Score

KERAS_ATTENTION = keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention
# More pairs of positions are not looked at for the most keys of a query.
MOST_PAIRS = 2**26
QUERIES_AT_ONCE = 64


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
        keys[id(call.layer)] = most_of(pattern_of(call), *lengths)
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
    return [c for c in layers if pattern_of(c).causal or c.arguments["query"] is c.value]


def pattern_of(call):
    """Return the pattern of a call of an attention layer."""
    pattern = call.layer.pattern
    return make_causal(pattern) if call.arguments.get("use_causal_mask") else pattern


def reach(calls):
    """Return the `Reach` of the decoder's layers, or of the encoder's if there is no other."""
    attention = self_attention(calls)
    attention = [call for call in attention if pattern_of(call).causal] or attention
    patterns = [pattern_of(call) for call in attention for _ in range(call.repeats)]
    steps = sum(call.repeats for call in calls if any(products_of(call)))
    if not patterns:
        return Reach(None, None, steps)
    return reach_of(patterns, max(call.num_keys for call in attention), steps)


def memory_cost(model, calls, length, batch_size, optimizer):
    """Return the `MemoryCost` of a model."""
    weights = variable_bytes(model.weights)
    gradients = variable_bytes(model.trainable_variables)
    slots = optimizer_bytes(model, optimizer)
    caches = sum(_caches(calls).values())
    read = sum(call.repeats * cache_bytes(call) for call in _attention(calls))
    activations = peak_of_activations(calls, loss_bytes(model, length, batch_size))
    training = weights + slots + gradients + cast_bytes(model) + activations
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
        if isinstance(call.layer, KERAS_ATTENTION):
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
    rows = sorted({0, length // 2, length - 1})
    reaches = [_follow(patterns, row, length) for row in rows]
    field, path = max(field for field, _ in reaches), max(path for _, path in reaches)
    return Reach(field, path, sequential_operations)


def _follow(patterns, row, length):
    """Return how many positions an output reads, and in how many layers it reaches all it can.

    Each position is followed once through each pattern, so time is at most that of all pairs.
    """
    seen = np.zeros(length, bool)
    seen[row] = True
    # By pattern: the positions that have been reached and not yet been followed through it.
    waiting = {pattern: [np.array([row])] for pattern in patterns}
    number = field = 1
    path = step = 0
    while any(waiting.values()):
        # Backwards: the last layer reads the outputs of the one before it.
        pattern = patterns[-1 - step % len(patterns)]
        keys = [_mark_keys(pattern, queries, seen) for queries in waiting[pattern]]
        waiting[pattern] = []
        step += 1
        for new in filter(len, keys):
            path, number = step, number + len(new)
            for positions in waiting.values():
                positions.append(np.sort(new))
        if step <= len(patterns):
            field = number
    return field, path


def _mark_keys(pattern, queries, seen):
    """Mark as `seen` the keys to which some of the queries attend, and return the new ones."""
    chunks = np.array_split(queries, -(-len(queries) // QUERIES_AT_ONCE))
    new_keys = []
    # Queries at both ends first: of a window they reach all keys that are new.
    for chunk in (chunks[0], *chunks[:0:-1]):
        keys = keys_in_reach(pattern, chunk[0], chunk[-1], len(seen))
        keys = keys[~seen[keys]]
        is_window = isinstance(pattern, Local) and chunk[-1] - chunk[0] < len(chunk)
        if len(keys) and not (pattern.simple_rule or is_window):
            keys = keys[allowed_pairs(pattern, chunk, keys).any(axis=0)]
        seen[keys] = True
        new_keys.append(keys)
    return np.concatenate(new_keys)


def keys_in_reach(pattern, first, last, num_keys):
    """Return at least the keys to which queries at positions from `first` to `last` attend."""
    kept = pattern.kept_keys
    if pattern.causal:
        reach, end = kept.size, last + 1
    else:
        reach = pattern.plan.window if isinstance(pattern.plan, Window) else None
        end = num_keys if reach is None else min(last + reach, num_keys)
    start = 0 if reach is None else max(first - reach + 1, 0)
    return np.concatenate([np.arange(min(kept.sinks, start)), np.arange(start, end)])


def most_keys(pattern, length, num_keys):
    """Return the most of `num_keys` keys that one of the last `length` positions may attend to.

    It is None if there are too many pairs to look at.
    """
    if pattern.simple_rule:
        return num_keys
    rows = np.arange(num_keys - length, num_keys)
    widest = max(len(keys_in_reach(pattern, i, i, num_keys)) for i in (rows[length // 2], rows[-1]))
    if isinstance(pattern, Local):
        return widest
    if length * widest > MOST_PAIRS:
        return None
    counts, at_once = [], min(max(widest, QUERIES_AT_ONCE), 1024)
    for chunk in np.array_split(rows, -(-length // at_once)):
        keys = keys_in_reach(pattern, chunk[0], chunk[-1], num_keys)
        counts.append(allowed_pairs(pattern, chunk, keys).sum(axis=-1).max())
    return int(max(counts))


def allowed_pairs(pattern, queries, keys):
    """Return a bool (T, S): the keys that each query may attend to, by positions.

    Any head counts.
    """
    queries, keys = queries.astype("int32"), keys.astype("int32")
    allowed = ops.convert_to_numpy(pattern.allowed(queries, keys))
    return allowed.any(axis=tuple(range(allowed.ndim - 2)))
