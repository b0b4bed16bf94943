"""Batches of labels and logits with different amounts of padding, for metrics."""

import numpy as np

V = 11


def batches():
    """Yield labels (B, T), 0 where padding is, and logits (B, T, V)."""
    rng = np.random.default_rng(0)
    for length, real in [(3, 1), (8, 8), (5, 2)]:
        labels = rng.integers(1, V, (2, length))
        labels[:, real:] = 0
        yield labels, rng.normal(scale=2.0, size=(2, length, V)).astype("float32")


def token_bits(labels, logits):
    """-log_2 softmax(logits)(label) of each token (B, T), in float64."""
    logits = logits.astype("float64")
    label_logits = np.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return (np.log(np.exp(logits).sum(-1)) - label_logits) / np.log(2)


def real_tokens():
    """(labels, bits) of the 22 real tokens of all batches."""
    bits = [(x[x != 0], token_bits(x, logits)[x != 0]) for x, logits in batches()]
    return tuple(np.concatenate(parts) for parts in zip(*bits))


def updated(metric, dtype=None):
    """Update a metric by all batches, with labels of a dtype."""
    for labels, logits in batches():
        metric.update_state(labels.astype(dtype or labels.dtype), logits)
    return metric
