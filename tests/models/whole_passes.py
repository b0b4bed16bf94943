"""GPT, BERT, Llama, gpt-oss, Gemma 2 and T5 in float64, from their papers."""

import math

import numpy as np
import oracles
from models import formulas

weight = oracles.numpy_of


def gpt(model, ids):
    x = weight(model.embedding.table)[ids] + weight(model.position.table)[: ids.shape[1]]
    formula = formulas.scaled_dot(causal(ids.shape[1]) & (ids != 0)[:, None, None])
    for block in model.depth.blocks:
        x = formulas.pre_norm(x, formulas.sublayers(block, formula, oracles.gelu_tanh))
    return formulas.closing(model, x) @ weight(model.embedding.table).T


def bert(model, ids, segments=None):
    segments = np.zeros_like(ids) if segments is None else segments
    table = weight(model.embedding.table)
    x = table[ids] + weight(model.position.table)[: ids.shape[1]]
    x = x + weight(model.segment.table)[segments]
    x = oracles.layer_norm(x, *oracles.norm_weights(model.norm), 1e-12)
    formula = formulas.scaled_dot((ids != 0)[:, None, None])
    for block in model.encoder.blocks:
        x = formulas.post_norm(x, formulas.sublayers(block, formula, oracles.gelu))
    kernel, bias = map(weight, model.head.dense.weights)
    x = np.vectorize(oracles.gelu)(x @ kernel + bias)
    x = oracles.layer_norm(x, *oracles.norm_weights(model.head.norm), 1e-12)
    return x @ table.T + weight(model.head.bias)


def rms_norm(norm, x):
    scale = weight(norm.scale) + norm.offset
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + norm.epsilon) * scale


def rotate(x, base, yarn=None):
    """Turn component i of (B, N, T, H) with component i + H / 2 by t / base^(2 i / H).

    `yarn` is its factor, by which slow components turn less, and the length of training.
    """
    half, amplitude = x.shape[-1] // 2, 1.0
    frequencies = base ** (-np.arange(half) / half)
    if yarn is not None:
        factor, length = yarn
        # Components that turn 32 times or more within the length keep their frequency.
        turns = [half * math.log(length / (2 * math.pi * n)) / math.log(base) for n in (32, 1)]
        low, high = max(turns[0], 0), turns[1]
        slow = np.clip((np.arange(half) - low) / (high - low), 0, 1)
        frequencies = frequencies * (1 - slow) + frequencies / factor * slow
        amplitude = 1 + 0.1 * math.log(factor)
    angles = np.arange(x.shape[2])[:, None] * frequencies
    a, b = x[..., :half], x[..., half:]
    sin, cos = amplitude * np.sin(angles), amplitude * np.cos(angles)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def t5_bias(layer, bidirectional, num_queries, num_keys, num_buckets=32, max_distance=128):
    """Return (N, T, S), with the buckets of the authors' code."""
    table = weight(layer.score.terms[1].table)
    bias = np.zeros((table.shape[1], num_queries, num_keys))
    for i, j in np.ndindex(num_queries, num_keys):
        first, side, distance = 0, num_buckets, max(i - j, 0)
        if bidirectional:
            side, distance = num_buckets // 2, abs(i - j)
            first = side if j > i else 0
        exact = side // 2
        if distance >= exact:
            far = math.log(distance / exact) / math.log(max_distance / exact) * (side - exact)
            distance = min(exact + int(far), side - 1)
        bias[:, i, j] = table[first + distance]
    return bias


def attend(layer, x, context, mask, scale, base=None, cap=None, bias=0.0, yarn=None):
    query, key = formulas.heads(layer, x, "query"), formulas.heads(layer, context, "key")
    if base is not None:
        query, key = rotate(query, base, yarn), rotate(key, base, yarn)
    logits = scale * np.einsum("bnth,bnsh->bnts", query, key) + bias
    if cap is not None:
        logits = cap * np.tanh(logits / cap)
    return formulas.weigh(layer, context, logits, mask)


def gated(layer, x, activation):
    gate, up, out = map(weight, layer.weights)
    return (np.vectorize(activation)(x @ gate) * (x @ up)) @ out


def causal(length, window=None):
    i, j = np.indices((length, length))
    return (j <= i) & (j > i - (window or length))


def llama(model, ids, base=10000):
    x, real = weight(model.embedding.table)[ids], (ids != 0)[:, None, None]
    mask = causal(ids.shape[1]) & real
    for block in model.depth.blocks:
        y = rms_norm(block.attention_residual.norm, x)
        x = x + attend(block.attention, y, y, mask, block.attention.key_dim**-0.5, base)
        y = rms_norm(block.feed_forward_residual.norm, x)
        x = x + gated(block.feed_forward, y, lambda value: value / (1 + math.exp(-value)))
    return rms_norm(model.depth.norm, x) @ weight(model.head.kernel)


def clipped_experts(layer, x):
    """Return the weighted outputs of the best k experts, whose gate is clipped on one side."""
    parts = layer.router_kernel, layer.router_bias, *layer.kernels, *layer.biases
    router, router_bias, *parts = map(weight, parts)
    output = np.zeros_like(x)
    for place in np.ndindex(x.shape[:2]):
        logits = x[place] @ router + router_bias
        chosen = np.argsort(-logits)[: layer.top_k]
        shares = np.exp(logits[chosen]) / np.exp(logits[chosen]).sum()
        for share, expert in zip(shares, chosen, strict=True):
            into_gate, into_up, out, gate_bias, up_bias, out_bias = (p[expert] for p in parts)
            gate = np.minimum(x[place] @ into_gate + gate_bias, 7.0)
            up = np.clip(x[place] @ into_up + up_bias, -7.0, 7.0)
            hidden = gate / (1 + np.exp(-1.702 * gate)) * (up + 1)
            output[place] += share * (hidden @ out + out_bias)
    return output


def gpt_oss(model, ids, window, yarn, base=150000):
    x, real = weight(model.embedding.table)[ids], (ids != 0)[:, None, None]
    for index, block in enumerate(model.depth.blocks):
        mask = causal(ids.shape[1], None if index % 2 else window) & real
        y, scale = rms_norm(block.attention_residual.norm, x), block.attention.key_dim**-0.5
        x = x + attend(block.attention, y, y, mask, scale, base, yarn=yarn)
        x = x + clipped_experts(block.feed_forward, rms_norm(block.feed_forward_residual.norm, x))
    return rms_norm(model.depth.norm, x) @ weight(model.head.kernel)


def gemma(model, ids, window, caps=(50.0, 30.0)):
    table, (length, real) = weight(model.embedding.table), (ids.shape[1], (ids != 0)[:, None, None])
    x = table[ids] * math.sqrt(table.shape[1])
    for index, block in enumerate(model.depth.blocks):
        mask = causal(length, None if index % 2 else window) & real
        around, scale = block.attention_residual, block.attention.key_dim**-0.5
        y = rms_norm(around.norm, x)
        y = attend(block.attention, y, y, mask, scale, 10000, caps[0])
        x = x + rms_norm(around.output_norm, y)
        around = block.feed_forward_residual
        y = gated(block.feed_forward, rms_norm(around.norm, x), oracles.gelu_tanh)
        x = x + rms_norm(around.output_norm, y)
    return caps[1] * np.tanh(rms_norm(model.depth.norm, x) @ table.T / caps[1])


def t5(model, source_ids, target_ids):
    # The paper's table, which embeds without a factor and whose logits are divided by its root.
    root = math.sqrt(model.embedding.hidden_dim)
    table = root * weight(model.embedding.table)
    masks = [(ids != 0)[:, None, None] for ids in (source_ids, target_ids)]

    def stack(depth, x, mask, bidirectional, context=None):
        for block in depth.blocks:
            y = rms_norm(block.attention_residual.norm, x)
            bias = t5_bias(block.attention, bidirectional, *2 * x.shape[1:2])
            x = x + attend(block.attention, y, y, mask, 1.0, bias=bias)
            if context is not None:
                y = rms_norm(block.cross_attention_residual.norm, x)
                x = x + attend(block.cross_attention, y, context, masks[0], 1.0)
            y = rms_norm(block.feed_forward_residual.norm, x)
            if len(block.feed_forward.weights) == 3:
                x = x + gated(block.feed_forward, y, oracles.gelu_tanh)
            else:
                kernels = map(weight, block.feed_forward.weights)
                x = x + np.maximum(y @ next(kernels), 0) @ next(kernels)
        return rms_norm(depth.norm, x)

    context = stack(model.encoder, table[source_ids], masks[0], True)
    mask = masks[1] & causal(target_ids.shape[1])
    y = stack(model.decoder, table[target_ids], mask, False, context)
    return y @ (table.T / root if model.head is None else weight(model.head.kernel))
