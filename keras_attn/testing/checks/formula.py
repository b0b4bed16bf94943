"""The numbers of an attention layer against its formula."""

import numpy as np
from keras import ops

from keras_attn.scores import DotProduct
from keras_attn.testing import oracle
from keras_attn.testing.attention_subject import position_of_heads
from keras_attn.testing.numbers import apart, random
from keras_attn.testing.running import NotApplicable
from keras_attn.testing.subject import array


def formula(subject):
    """The output is that of loops in numpy over the pairs that the pattern allows.

    Weights are read in the order of `keras.layers.MultiHeadAttention`. A score other than a dot
    product is the layer's own, asked for one pair of query and key at a time; so is a position
    of heads.
    """
    subject.need_positions()
    layer = subject.copy()
    projections = _projections(layer)
    query, value = subject.query, subject.value
    key = random(*value.shape, seed=2)
    real = subject.real(value)
    pairs = np.random.default_rng(3).random((*query.shape[:2], value.shape[1])) < 0.6
    calls = {"self-attention": {"query": value, "value": value}}
    cross = {"query": query, "value": value}
    calls["attention to more keys than queries"] = cross
    if subject.accepts("attention_mask") or subject.accepts("value_mask"):
        calls["attention with a padding mask"] = {**cross, "real": real}
    if subject.accepts("attention_mask"):
        calls["attention with an `attention_mask`"] = {**cross, "pairs": pairs}
        calls["attention with both masks"] = {**cross, "pairs": pairs, "real": real}
    if True in subject.causal_flags():
        calls["causal self-attention"] = {"query": value, "value": value, "causal": True}
    if subject.accepts("key") and projections["key"][0].shape[0] == key.shape[-1]:
        calls["attention with keys of their own"] = {**cross, "key": key}
    for name, call in calls.items():
        yield from _compare(subject, layer, projections, name, **call)


def _compare(subject, layer, projections, name, query, value, key=None, **masks):
    allowed = _allowed(subject, query, value, **masks)
    q, k, v = (
        oracle.projections(x.astype("float64"), *projections[part])
        for x, part in ((query, "query"), (value if key is None else key, "key"), (value, "value"))
    )
    shared = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, shared, axis=1), np.repeat(v, shared, axis=1)
    allowed = np.broadcast_to(allowed, (*q.shape[:3], k.shape[2]))
    expected, weights = oracle.attention(_logits(layer, q, k), v, *projections["output"], allowed)
    # What a query with no key gets is the matter of another check.
    met = allowed.any(axis=-1)
    output = subject.attend(layer, query, value, key, **masks)
    every_head = met.all(axis=1)
    far = apart([output[every_head]], [expected[every_head]], 1e-4)
    if far:
        yield f"The output of {name} is not softmax(scores) V over the allowed keys: {far}."
    if subject.accepts("return_attention_scores"):
        _, scores = subject.attend(layer, query, value, key, scores=True, **masks)
        far = apart([scores], [weights], 1e-4) if scores.shape != weights.shape else None
        far = far or apart([scores[met]], [weights[met]], 1e-4)
        if far:
            yield f"The attention scores of {name} are not the weights of the formula: {far}."


def _allowed(subject, query, value, real=None, pairs=None, causal=False):
    """Bool (B or 1, N or 1, T, S)."""
    allowed = subject.allowed(query.shape[1], value.shape[1], causal)[None]
    if real is not None:
        allowed = allowed & real[:, None, None]
    return allowed if pairs is None else allowed & pairs[:, None]


def _logits(layer, query, key):
    score = getattr(layer, "score", DotProduct())
    batch, heads, length, size = query.shape
    keys = key.shape[2]
    position = position_of_heads(layer)
    if position is not None:
        query, key = (
            array(position(ops.convert_to_tensor(x), np.arange(keys - x.shape[2], keys)))
            for x in (query, key)
        )
    if isinstance(score, DotProduct):
        return oracle.dot_products(query, key, score.scaled)

    # Each pair is a batch row of its own, so that it cannot see the others.
    def alone(x, axis):
        x = np.expand_dims(np.moveaxis(x, 1, 2), axis)  # (B, T, 1, N, H) or (B, 1, S, N, H)
        x = np.broadcast_to(x, (batch, length, keys, heads, size))
        return ops.convert_to_tensor(x.reshape(-1, heads, 1, size).astype("float32"))

    places = np.broadcast_to(np.arange(keys), (batch, length, keys))
    where = np.broadcast_to(np.arange(keys - length, keys)[:, None], places.shape)
    logits = score(
        alone(query, 2),
        alone(key, 1),
        query_positions=ops.convert_to_tensor(where.reshape(-1, 1, 1).astype("int32")),
        key_positions=ops.convert_to_tensor(places.reshape(-1, 1, 1).astype("int32")),
    )
    logits = ops.convert_to_numpy(logits).reshape(batch, length, keys, heads)
    return np.moveaxis(logits, 3, 1).astype("float64")


def _projections(layer):
    """Kernel and bias of each projection, in float64."""
    weights = [array(weight).astype("float64") for weight in layer.weights]
    step = 2 if len(weights) > 1 and weights[1].ndim == 2 else 1
    found = {}
    for place, name in enumerate(("query", "key", "value", "output")):
        kernel, *bias = weights[place * step : (place + 1) * step] or [np.zeros(0)]
        outer = 2 if name == "output" else 1
        is_projection = kernel.ndim == 3 and (
            step == 1 or (len(bias) == 1 and bias[0].shape == kernel.shape[outer:])
        )
        if not is_projection:
            break
        found[name] = kernel, bias[0] if bias else np.zeros(kernel.shape[outer:])
    shapes = {name: kernel.shape for name, (kernel, _) in found.items()}
    has_more = len(weights) > 4 * step and not hasattr(layer, "score")
    if (
        len(shapes) < 4
        or has_more
        or shapes["query"][2] != shapes["key"][2]
        or shapes["key"][1] != shapes["value"][1]
        or shapes["query"][1] % shapes["key"][1]
        or shapes["output"][:2] != (shapes["query"][1], shapes["value"][2])
    ):
        raise NotApplicable(
            "the weights do not stand in the order of `keras.layers.MultiHeadAttention`: "
            f"{[weight.shape for weight in weights]}"
        )
    return found
