"""Llama, Gemma 2 and T5 in float64, written from their papers, for the weights of a model."""

import math

import numpy as np
import oracles
from models import formulas

weight = oracles.numpy_of


def rms_norm(norm, x):
    scale = weight(norm.scale) + norm.offset
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + norm.epsilon) * scale


def rotate(x, base):
    """Turn component i of (B, N, T, H) with component i + H / 2 by t / base^(2 i / H)."""
    half = x.shape[-1] // 2
    angles = np.arange(x.shape[2])[:, None] * base ** (-np.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    sin, cos = np.sin(angles), np.cos(angles)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def t5_bias(layer, bidirectional, num_queries, num_keys, num_buckets=32, max_distance=128):
    """Return (N, T, S), with the buckets of the authors' code."""
    table = weight(layer.score.terms[1].table)
    found = np.zeros((table.shape[1], num_queries, num_keys))
    for i, j in np.ndindex(num_queries, num_keys):
        first, side, distance = 0, num_buckets, max(i - j, 0)
        if bidirectional:
            side, distance = num_buckets // 2, abs(i - j)
            first = side if j > i else 0
        exact = side // 2
        if distance >= exact:
            far = math.log(distance / exact) / math.log(max_distance / exact) * (side - exact)
            distance = min(exact + int(far), side - 1)
        found[:, i, j] = table[first + distance]
    return found


def attend(layer, x, context, mask, scale, base=None, cap=None, bias=0.0):
    query, key = formulas.heads(layer, x, "query"), formulas.heads(layer, context, "key")
    if base is not None:
        query, key = rotate(query, base), rotate(key, base)
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
            kernels = map(weight, block.feed_forward.weights)
            x = x + np.maximum(y @ next(kernels), 0) @ next(kernels)
        return rms_norm(depth.norm, x)

    context = stack(model.encoder, table[source_ids], masks[0], True)
    mask = masks[1] & causal(target_ids.shape[1])
    return stack(model.decoder, table[target_ids], mask, False, context) @ table.T / root
