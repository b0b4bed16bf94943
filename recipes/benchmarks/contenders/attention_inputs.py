"""Random queries, keys and values, the same for every contender."""

import numpy as np

from ..operations import HEAD_DIM, HEADS


def heads(length, count=3, heads_first=True):
    """`count` float32 arrays, (1, heads, length, head size) or (1, length, heads, head size)."""
    shape = (1, HEADS, length, HEAD_DIM)
    generator = np.random.default_rng(0)
    for _ in range(count):
        array = generator.standard_normal(shape, dtype="float32")
        yield array if heads_first else np.ascontiguousarray(array.swapaxes(1, 2))


def sequence(length, width=HEADS * HEAD_DIM):
    """A float32 array (1, length, width)."""
    return np.random.default_rng(0).standard_normal((1, length, width), dtype="float32")


def random_heads(length, batch):
    """Queries, keys and values of several sequences, float32 (batch, heads, length, head size)."""
    generator = np.random.default_rng(0)
    for _ in range(3):
        yield generator.standard_normal((batch, HEADS, length, HEAD_DIM), dtype="float32")
