"""Random queries, keys and values, the same for every contender."""

import numpy as np

from ..operations import HEAD_DIM, HEADS


def heads(length, count=3, heads_first=True, batch=1):
    """`count` float32 arrays, (B, heads, length, head size) or (B, length, heads, head size)."""
    shape = (batch, HEADS, length, HEAD_DIM)
    generator = np.random.default_rng(0)
    for _ in range(count):
        array = generator.standard_normal(shape, dtype="float32")
        yield array if heads_first else np.ascontiguousarray(array.swapaxes(1, 2))


def sequence(length, width=HEADS * HEAD_DIM):
    """A float32 array (1, length, width)."""
    return np.random.default_rng(0).standard_normal((1, length, width), dtype="float32")
