"""The papers' formulas as plain loops in float64. Nothing here imports what it checks.

Letters as in the library: B batch, T query length, S key length, N heads, H head size, D hidden,
F intermediate, V vocabulary. Kernels have the shapes of Keras's multi-head attention: (D, N, H) in,
(N, Hv, D) out.
"""

import math

import numpy as np


def random(*shape, seed=0, scale=1.0):
    """Normal numbers, the same ones for the same shape and seed."""
    generator = np.random.default_rng([seed, *shape])
    return (scale * generator.standard_normal(shape)).astype("float32")


def numpy_of(tensor):
    """A float64 array of a tensor of any backend and float dtype."""
    from keras import ops

    tensor = ops.cast(ops.convert_to_tensor(tensor), "float32")
    return ops.convert_to_numpy(tensor).astype("float64")


def scaled_dot(query, key, head=None):
    return dot(query, key) / math.sqrt(len(query))


def dot(query, key, head=None):
    return sum(q * k for q, k in zip(query, key, strict=True))


def additive(query_kernel, key_kernel, bias, output_kernel):
    """Bahdanau's score w . tanh(W_q q + W_k k + b), one network a head."""

    def score(query, key, head):
        total = 0.0
        for unit in range(bias.shape[1]):
            hidden = bias[head, unit]
            for h in range(len(query)):
                hidden += query[h] * query_kernel[head, h, unit]
                hidden += key[h] * key_kernel[head, h, unit]
            total += output_kernel[head, unit] * math.tanh(hidden)
        return total

    return score


def causal(query_length, key_length):
    """(T, S): the queries are the last T of S positions."""
    allowed = np.zeros((query_length, key_length), bool)
    for t in range(query_length):
        for s in range(key_length):
            allowed[t, s] = s <= t + key_length - query_length
    return allowed


def softmax(logits, allowed):
    """Over the allowed entries of a list; all zeros if there is none."""
    if not any(allowed):
        return [0.0] * len(logits)
    top = max(x for x, ok in zip(logits, allowed, strict=True) if ok)
    weights = [math.exp(x - top) if ok else 0.0 for x, ok in zip(logits, allowed, strict=True)]
    return [w / sum(weights) for w in weights]


def project(x, kernel, bias):
    """(T, D) with a kernel (D, N, H) and a bias (N, H) -> (N, T, H)."""
    length, hidden = x.shape
    _, heads, size = kernel.shape
    out = np.zeros((heads, length, size))
    for n in range(heads):
        for t in range(length):
            for h in range(size):
                out[n, t, h] = bias[n, h] + sum(x[t, d] * kernel[d, n, h] for d in range(hidden))
    return out


def attention(query, value, weights, allowed, score=scaled_dot, key=None):
    """Multi-head attention.

    Args:
        query, value, key: (B, T, D), (B, S, D), (B, S, D).
        weights: dict of `query_kernel`, `query_bias`, ... `output_bias`; missing biases are 0.
        allowed: bool, broadcastable to (B, N, T, S).
        score: function of a query (H,), a key (H,) and the head.

    Returns:
        Output (B, T, D) and weights (B, N, T, S).
    """
    kernels = {n: np.asarray(weights[f"{n}_kernel"], "float64") for n in ("query", "key", "value")}
    biases = {n: _bias(weights, n, kernels[n].shape[1:]) for n in kernels}
    output_kernel = np.asarray(weights["output_kernel"], "float64")
    output_bias = _bias(weights, "output", output_kernel.shape[2:])
    key = value if key is None else key
    batch, length, keys = query.shape[0], query.shape[1], value.shape[1]
    heads = kernels["query"].shape[1]
    shared = heads // kernels["key"].shape[1]
    allowed = np.broadcast_to(allowed, (batch, heads, length, keys))
    scores = np.zeros((batch, heads, length, keys))
    output = np.zeros((batch, length, output_kernel.shape[2]))
    for b in range(batch):
        q = project(np.asarray(query[b], "float64"), kernels["query"], biases["query"])
        k = project(np.asarray(key[b], "float64"), kernels["key"], biases["key"])
        v = project(np.asarray(value[b], "float64"), kernels["value"], biases["value"])
        for t in range(length):
            output[b, t] = output_bias
            for n in range(heads):
                logits = [score(q[n, t], k[n // shared, s], n) for s in range(keys)]
                scores[b, n, t] = softmax(logits, allowed[b, n, t])
                for s in range(keys):
                    output[b, t] += scores[b, n, t, s] * (v[n // shared, s] @ output_kernel[n])
    return output, scores


def _bias(weights, name, shape):
    bias = weights.get(f"{name}_bias")
    return np.zeros(shape) if bias is None else np.asarray(bias, "float64")


def sinusoids(position, dim, layout="interleaved", max_wavelength=10000):
    """One row of the table, for one position."""
    row = np.zeros(dim)
    for pair in range((dim + 1) // 2):
        if layout == "tensor2tensor":
            angle = position * math.exp(-pair * math.log(max_wavelength) / max(dim // 2 - 1, 1))
        else:
            angle = position / max_wavelength ** (2 * pair / dim)
        places = (2 * pair, 2 * pair + 1) if layout == "interleaved" else (pair, pair + dim // 2)
        if layout != "interleaved" and pair >= dim // 2:
            continue  # an odd width ends with a zero
        row[places[0]] = math.sin(angle)
        if places[1] < dim:
            row[places[1]] = math.cos(angle)
    return row


def layer_norm(x, gamma, beta, epsilon):
    """Over the last axis of (..., D)."""
    out = np.zeros(x.shape)
    for index in np.ndindex(x.shape[:-1]):
        row = np.asarray(x[index], "float64")
        mean = sum(row) / len(row)
        variance = sum((value - mean) ** 2 for value in row) / len(row)
        out[index] = gamma * (row - mean) / math.sqrt(variance + epsilon) + beta
    return out


def feed_forward(x, weights, activation=lambda value: max(value, 0.0)):
    """max(0, x W1 + b1) W2 + b2, position by position."""
    w1, b1, w2, b2 = (np.asarray(weights[name], "float64") for name in ("w1", "b1", "w2", "b2"))
    out = np.zeros((*x.shape[:-1], w2.shape[1]))
    for index in np.ndindex(x.shape[:-1]):
        hidden = np.array([activation(value) for value in x[index] @ w1 + b1])
        out[index] = hidden @ w2 + b2
    return out


def gelu(x):
    """x times the normal distribution function at x."""
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def gelu_tanh(x):
    return x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def block(
    x,
    weights,
    allowed,
    *,
    pre_norm=False,
    epsilon=1e-6,
    context=None,
    context_allowed=True,
    activation=lambda value: max(value, 0.0),
):
    """One encoder block, or with a context one decoder block."""

    def sublayer(x, norm, function):
        gamma, beta = weights[norm]
        if pre_norm:
            return x + function(layer_norm(x, gamma, beta, epsilon))
        return layer_norm(x + function(x), gamma, beta, epsilon)

    x = sublayer(
        np.asarray(x, "float64"),
        "attention_norm",
        lambda y: attention(y, y, weights["attention"], allowed)[0],
    )
    if context is not None:
        x = sublayer(
            x,
            "cross_attention_norm",
            lambda y: attention(y, context, weights["cross_attention"], context_allowed)[0],
        )
    return sublayer(
        x, "feed_forward_norm", lambda y: feed_forward(y, weights["feed_forward"], activation)
    )


def encoder_decoder(source_ids, target_ids, weights, *, pre_norm=False, epsilon=1e-6):
    """Logits of section 3 of the paper. Token 0 is padding; the three tables are one.

    `weights`: `table` (V, D), `encoder` and `decoder` lists of block weights and, for pre-norm,
    `encoder_norm` and `decoder_norm`.
    """
    table = np.asarray(weights["table"], "float64")
    dim = table.shape[1]

    def embed(ids):
        x = np.zeros((*ids.shape, dim))
        for b, t in np.ndindex(ids.shape):
            x[b, t] = math.sqrt(dim) * table[ids[b, t]] + sinusoids(t, dim)
        return x

    source_real = (source_ids != 0)[:, None, None, :]
    target_real = (target_ids != 0)[:, None, None, :]
    context = embed(source_ids)
    for layer in weights["encoder"]:
        context = block(context, layer, source_real, pre_norm=pre_norm, epsilon=epsilon)
    if pre_norm:
        context = layer_norm(context, *weights["encoder_norm"], epsilon)
    x = embed(target_ids)
    length = target_ids.shape[1]
    for layer in weights["decoder"]:
        x = block(
            x,
            layer,
            target_real & causal(length, length),
            pre_norm=pre_norm,
            epsilon=epsilon,
            context=context,
            context_allowed=source_real,
        )
    if pre_norm:
        x = layer_norm(x, *weights["decoder_norm"], epsilon)
    return x @ table.T


def attention_weights(layer):
    """The weights of a multi-head attention layer as `attention` takes them."""
    names = ("query", "key", "value", "output")
    weights = {}
    for name in names:
        weights[f"{name}_kernel"] = numpy_of(getattr(layer, f"{name}_kernel"))
        if getattr(layer, f"{name}_bias") is not None:
            weights[f"{name}_bias"] = numpy_of(getattr(layer, f"{name}_bias"))
    return weights


def block_weights(layer):
    """The weights of a TransformerBlock as `block` takes them."""
    weights = {
        "attention": attention_weights(layer.attention),
        "attention_norm": norm_weights(layer.attention_residual.norm),
        "feed_forward": dict(
            zip(("w1", "b1", "w2", "b2"), map(numpy_of, layer.feed_forward.weights), strict=True)
        ),
        "feed_forward_norm": norm_weights(layer.feed_forward_residual.norm),
    }
    if layer.cross_attention is not None:
        weights["cross_attention"] = attention_weights(layer.cross_attention)
        weights["cross_attention_norm"] = norm_weights(layer.cross_attention_residual.norm)
    return weights


def norm_weights(norm):
    return numpy_of(norm.gamma), numpy_of(norm.beta)


def scramble(layer, seed=0, scale=0.3):
    """Gives every weight random values, biases and norms too, so that none can hide at 0 or 1."""
    values = [
        np.random.default_rng([seed, i]).normal(0.0, scale, w.shape).astype("float32")
        for i, w in enumerate(layer.weights)
    ]
    are_variances = [w.name == "variance" for w in layer.weights]
    layer.set_weights([np.abs(x) if is_v else x for x, is_v in zip(values, are_variances)])


def scramble_decoder(model):
    """Return a model with random weights, of small tables and biases, so that its outputs vary."""
    scramble(model, seed=3, scale=0.7)
    for weight in model.weights:
        if weight.name in ("table", "beta") or "bias" in weight.name:
            weight.assign(0.1 * weight)
    return model


def check_each(results, expected, atol, scaled=False):
    """Check that arrays equal others, one by one; `scaled` ones at most to the largest entry."""
    for result, wanted in zip(results, expected, strict=True):
        scale = max(1.0, np.abs(wanted).max()) if scaled else 1.0
        np.testing.assert_allclose(result / scale, wanted / scale, atol=atol)
