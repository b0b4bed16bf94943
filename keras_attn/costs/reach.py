"""Reach of information: the keys of a layer, and the layers between two positions."""

from typing import NamedTuple

import numpy as np
from keras import ops

# The pairs of a longer input are too many to follow one by one.
MOST_POSITIONS = 2048


class Reach(NamedTuple):
    """Distances of information in a model; None for inputs that are too long to follow.

    Attributes:
        receptive_field: int. The most positions that one output reads through all layers.
        path_length: int. The most layers that one position needs to reach another, if it reaches
            it at all and the layers repeat in their order: 1 where all pairs are allowed, p for p
            factors. Both ends counted, a path has p + 1 positions.
        sequential_operations: int. Layers with products that run one after another.
    """

    receptive_field: int | None
    path_length: int | None
    sequential_operations: int


def reach_of(patterns, length, sequential_operations):
    """Return the `Reach` of self-attention layers with these patterns, in their order."""
    if length > MOST_POSITIONS and not all(pattern.simple_rule for pattern in patterns):
        return Reach(None, None, sequential_operations)
    if all(pattern.simple_rule for pattern in patterns):
        return Reach(length, 1, sequential_operations)
    pairs = {id(p): allowed_pairs(p, length).astype("float32") for p in patterns}
    rows = sorted({0, length // 2, length - 1})
    seen = np.eye(length, dtype=bool)[rows]
    field, path, step, unchanged = None, 0, 0, 0
    while field is None or unchanged < len(patterns):
        # Backwards: the last layer reads the outputs of the one before it.
        matrix = pairs[id(patterns[-1 - step % len(patterns)])]
        after = seen | (seen.astype("float32") @ matrix > 0)
        step += 1
        if (after == seen).all():
            unchanged += 1
        else:
            unchanged, path = 0, step
        seen = after
        if step == len(patterns):
            field = int(seen.sum(axis=-1).max())
    return Reach(field, path, sequential_operations)


def most_keys(pattern, length):
    """Return the most keys that a query of a sequence may attend to; None if it is too long."""
    if pattern.simple_rule:
        return length
    if length > MOST_POSITIONS:
        return None
    return int(allowed_pairs(pattern, length).sum(axis=-1).max())


def allowed_pairs(pattern, length):
    """Return a bool (T, T): the keys that each query may attend to, in any head."""
    positions = np.arange(length, dtype="int32")
    allowed = ops.convert_to_numpy(pattern.allowed(positions, positions))
    return allowed.any(axis=tuple(range(allowed.ndim - 2)))
