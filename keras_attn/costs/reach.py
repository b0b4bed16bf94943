"""Reach of information: the keys of a layer, and the layers between two positions."""

from typing import NamedTuple

import numpy as np
from keras import ops

# The pairs of a longer input are too many to follow one by one.
MOST_POSITIONS = 2048


class Reach(NamedTuple):
    """Distances of information in a model; None for inputs that are too long to follow.

    Positions are those of the keys, slots of a memory and tokens that a model adds among them.
    Where patterns leave out pairs, three outputs are followed: the first, middle and last one.

    Attributes:
        receptive_field: int. The most positions that one output reads through all layers.
        path_length: int. The most layers that an output needs to be reached from a position, if it
            is at all and the layers repeat in their order: 1 where all pairs are allowed, p for p
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
    pairs = {p: allowed_pairs(p, length, length).astype("float32") for p in {*patterns}}
    rows = sorted({0, length // 2, length - 1})
    seen = np.eye(length, dtype=bool)[rows]
    field, path, step, unchanged = None, 0, 0, 0
    while field is None or unchanged < len(patterns):
        # Backwards: the last layer reads the outputs of the one before it.
        matrix = pairs[patterns[-1 - step % len(patterns)]]
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


def most_keys(pattern, length, num_keys):
    """Return the most of `num_keys` keys that one of the last `length` positions may attend to.

    It is None if there are too many.
    """
    if pattern.simple_rule:
        return num_keys
    if num_keys > MOST_POSITIONS:
        return None
    return int(allowed_pairs(pattern, length, num_keys).sum(axis=-1).max())


def allowed_pairs(pattern, length, num_keys):
    """Return a bool (T, S): the keys that each query, at the last positions, may attend to.

    Any head counts.
    """
    positions = np.arange(num_keys, dtype="int32")
    allowed = ops.convert_to_numpy(pattern.allowed(positions[-length:], positions))
    return allowed.any(axis=tuple(range(allowed.ndim - 2)))
