"""The output of an attention layer equals numpy loops of its formula."""

import math

import numpy as np
from keras import ops

from keras_attn.scores import DotProduct
from keras_attn.testing.numerics import compare, random, to_array
from keras_attn.testing.subject import NotApplicable, norms_of_heads, position_of_heads


def formula(subject):
    """The output equals numpy loops over the pairs that the pattern allows.

    Weights are read in the order of `keras.layers.MultiHeadAttention`. A score other than a dot
    product is computed by the layer's own score, one pair of query and key at a time. A norm and
    a position of heads are the layer's own too.
    """
    subject.require_position_pattern()
    layer = subject.copy()
    projections = _projections(layer)
    query, value = subject.query, subject.value
    key = random(*value.shape, seed=2)
    key_mask = subject.key_mask(value)
    pair_mask = np.random.default_rng(3).random((*query.shape[:2], value.shape[1])) < 0.6
    self_attention, cross = {"query": value, "value": value}, {"query": query, "value": value}
    calls = {"self-attention": self_attention, "attention to more keys than queries": cross}
    if subject.accepts_key_mask():
        calls["attention with a padding mask"] = {**cross, "key_mask": key_mask}
    if subject.accepts("attention_mask"):
        one = calls["attention with an `attention_mask`"] = {**cross, "pair_mask": pair_mask}
        calls["attention with both masks"] = {**one, "key_mask": key_mask}
    if True in subject.causal_flags():
        calls["causal self-attention"] = {**self_attention, "causal": True}
    if subject.accepts("key") and projections["key"][0].shape[0] == key.shape[-1]:
        calls["attention with separate keys"] = {**cross, "key": key}
    for name, call in calls.items():
        yield from _compare(subject, layer, projections, name, **call)


def _compare(subject, layer, projections, name, query, value, key=None, **masks):
    q, k, v = (
        _project(x.astype("float64"), *projections[part])
        for x, part in ((query, "query"), (value if key is None else key, "key"), (value, "value"))
    )
    group_size = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group_size, axis=1), np.repeat(v, group_size, axis=1)
    allowed = _allowed_pairs(subject, query, value, **masks)
    allowed = np.broadcast_to(allowed, (*q.shape[:3], k.shape[2]))
    logits, sinks = _logits(layer, q, k), getattr(layer, "sink_logits", None)
    sinks = np.full(q.shape[1], -np.inf) if sinks is None else to_array(sinks).astype("float64")
    gate = np.ones((*q.shape[:3], v.shape[3]))
    if "gate" in projections:
        gate = 1 / (1 + np.exp(-_project(query.astype("float64"), *projections["gate"])))
    expected, weights = _attend(logits, sinks, v, gate, *projections["output"], allowed)
    # The check `empty_rows` covers queries without keys.
    has_keys = allowed.any(axis=-1)
    in_every_head = has_keys.all(axis=1)
    output = subject.attend(layer, query, value, key, **masks)
    sentence = f"The output of {name} was expected to be softmax(scores) V over the allowed keys"
    yield from compare(sentence, [output[in_every_head]], [expected[in_every_head]], 1e-4)
    if subject.accepts("return_attention_scores"):
        _, scores = subject.attend(layer, query, value, key, scores=True, **masks)
        if scores.shape == weights.shape:
            scores, weights = scores[has_keys], weights[has_keys]
        sentence = f"The attention scores of {name} were expected to be the formula's weights"
        yield from compare(sentence, [scores], [weights], 1e-4)


def _allowed_pairs(subject, query, value, key_mask=None, pair_mask=None, causal=False):
    """Bool (B or 1, N or 1, T, S)."""
    allowed = subject.pattern_mask(query.shape[1], value.shape[1], causal)[None]
    if key_mask is not None:
        allowed = allowed & key_mask[:, None, None]
    return allowed if pair_mask is None else allowed & pair_mask[:, None]


def _project(x, kernel, bias):
    """Project each vector: x (B, S, D), kernel (D, N, H), bias (N, H) -> (B, N, S, H)."""
    return np.einsum("bsd,dnh->bnsh", x, kernel) + bias[:, None]


def _attend(logits, sinks, value, gate, output_kernel, output_bias, allowed):
    """The output (B, T, D) and the weights (B, N, T, S) of values (B, N, S, Hv)."""
    batch, heads, length, num_keys = logits.shape
    weights = np.zeros(logits.shape)
    output = np.zeros((batch, length, output_kernel.shape[2])) + output_bias
    for b, n, t in np.ndindex(batch, heads, length):
        keys = [s for s in range(num_keys) if allowed[b, n, t, s]]
        largest = max([sinks[n], *(logits[b, n, t, s] for s in keys)]) if keys else 0.0
        exponentials = {s: math.exp(logits[b, n, t, s] - largest) for s in keys}
        total = sum(exponentials.values()) + np.exp(sinks[n] - largest) if keys else 1.0
        for s in keys:
            weights[b, n, t, s] = exponentials[s] / total
            gated = gate[b, n, t] * value[b, n, s]
            output[b, t] += weights[b, n, t, s] * (gated @ output_kernel[n])
    return output, weights


def _logits(layer, query, key):
    """Logits (B, N, T, S) of query (B, N, T, H), at the last positions, and key (B, N, S, H)."""
    score = getattr(layer, "score", DotProduct())
    batch, heads, length, size = query.shape
    num_keys = key.shape[2]
    norms = norms_of_heads(layer)
    if norms[0] is not None:
        pairs = zip(norms, (query, key), strict=True)
        query, key = (to_array(norm(ops.convert_to_tensor(x, "float32"))) for norm, x in pairs)
    position = position_of_heads(layer)
    if position is not None:
        query, key = (
            to_array(position(ops.convert_to_tensor(x), np.arange(num_keys - x.shape[2], num_keys)))
            for x in (query, key)
        )
    if isinstance(score, DotProduct):
        logits = np.einsum("bnth,bnsh->bnts", query, key)
        return logits / math.sqrt(size) if score.scaled else logits

    # Each pair is its own batch row, so pairs cannot affect each other.
    def one_pair_a_row(x, axis):
        x = np.expand_dims(np.moveaxis(x, 1, 2), axis)  # (B, T, 1, N, H) or (B, 1, S, N, H)
        x = np.broadcast_to(x, (batch, length, num_keys, heads, size))
        return ops.convert_to_tensor(x.reshape(-1, heads, 1, size).astype("float32"))

    keys = np.broadcast_to(np.arange(num_keys), (batch, length, num_keys))
    queries = np.broadcast_to(np.arange(num_keys - length, num_keys)[:, None], keys.shape)
    logits = score(
        one_pair_a_row(query, 2),
        one_pair_a_row(key, 1),
        query_positions=ops.convert_to_tensor(queries.reshape(-1, 1, 1).astype("int32")),
        key_positions=ops.convert_to_tensor(keys.reshape(-1, 1, 1).astype("int32")),
    )
    logits = ops.convert_to_numpy(logits).reshape(batch, length, num_keys, heads)
    return np.moveaxis(logits, 3, 1).astype("float64")


def _projections(layer):
    """Read the kernel and the bias of each projection, in float64, by name."""
    weights = [to_array(weight).astype("float64") for weight in layer.weights]
    gate = ["gate"] if getattr(layer, "use_gate", False) else []
    names = ["query", "key", *gate, "value", "output"]
    has_biases = len(weights) > 1 and weights[1].ndim == 2
    step = 2 if has_biases else 1
    count = step * len(names)
    kernels = weights[:count:step]
    if _are_kernels(kernels, len(names)) and (len(weights) == count or hasattr(layer, "score")):
        shapes = [*(kernel.shape[1:] for kernel in kernels[:-1]), kernels[-1].shape[2:]]
        biases = weights[1:count:2] if has_biases else [np.zeros(shape) for shape in shapes]
        if [bias.shape for bias in biases] == shapes:
            return dict(zip(names, zip(kernels, biases, strict=True), strict=True))
    raise NotApplicable(
        "the weights are not in the order of `keras.layers.MultiHeadAttention`: "
        f"{[weight.shape for weight in weights]}"
    )


def _are_kernels(kernels, count):
    """Return True for kernels of projections of Keras's shapes, the one of the output last."""
    if [kernel.ndim for kernel in kernels] != [3] * count:
        return False
    query, key, *_, value, output = (kernel.shape for kernel in kernels)
    is_of_heads = (query[2], key[1], query[1] % key[1]) == (key[2], value[1], 0)
    return is_of_heads and output[:2] == (query[1], value[2])
