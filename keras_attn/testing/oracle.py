"""Multi-head attention in loops over numbers, from the formula alone."""

import math

import numpy as np


def projections(x, kernel, bias):
    """x (B, S, D), kernel (D, N, H), bias (N, H) -> (B, N, S, H)."""
    batch, length, _ = x.shape
    _, heads, size = kernel.shape
    out = np.zeros((batch, heads, length, size))
    for b in range(batch):
        for n in range(heads):
            for s in range(length):
                out[b, n, s] = x[b, s] @ kernel[:, n] + bias[n]
    return out


def dot_products(query, key, scaled=True):
    """query (B, N, T, H), key (B, N, S, H) -> logits (B, N, T, S)."""
    batch, heads, length, size = query.shape
    logits = np.zeros((batch, heads, length, key.shape[2]))
    for b, n, t, s in np.ndindex(*logits.shape):
        logits[b, n, t, s] = query[b, n, t] @ key[b, n, s]
    return logits / math.sqrt(size) if scaled else logits


def attention(logits, value, output_kernel, output_bias, allowed):
    """The output (B, T, D) and the weights (B, N, T, S).

    Args:
        logits: (B, N, T, S). value: (B, N, S, Hv). allowed: bool, as the logits.
        output_kernel: (N, Hv, D). output_bias: (D,).
    """
    batch, heads, length, keys = logits.shape
    weights = np.zeros(logits.shape)
    output = np.zeros((batch, length, output_kernel.shape[2])) + output_bias
    for b, n, t in np.ndindex(batch, heads, length):
        met = [s for s in range(keys) if allowed[b, n, t, s]]
        highest = max((logits[b, n, t, s] for s in met), default=0.0)
        parts = {s: math.exp(logits[b, n, t, s] - highest) for s in met}
        for s in met:
            weights[b, n, t, s] = parts[s] / sum(parts.values())
            output[b, t] += weights[b, n, t, s] * (value[b, n, s] @ output_kernel[n])
    return output, weights
