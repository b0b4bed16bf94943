"""Sizes, padding and cutting of the sequence axis, for lengths known or not."""

from keras import ops

# Stands for a length that is not known when a graph is built: long.
UNKNOWN_LENGTH = 2**20


def size(x, axis):
    """The size of an axis as an int where it is known, as a tensor where it is not."""
    known = x.shape[axis]
    return ops.shape(x)[axis] if known is None else known


def sizes(x):
    return tuple(size(x, axis) for axis in range(len(x.shape)))


def pad(x, front, back, axis=2):
    """Zeros (False) before and after."""
    if isinstance(front, int) and isinstance(back, int) and front == back == 0:
        return x
    widths = [(0, 0)] * len(x.shape)
    widths[axis] = (front, back)
    if x.dtype != "bool":
        return ops.pad(x, widths)
    return ops.cast(ops.pad(ops.cast(x, "int32"), widths), "bool")


def part_of(x, start, length, axis):
    """x[start : start + length] along an axis.

    Not written with brackets: their gradient on TensorFlow takes ten times longer.
    """
    starts, lengths = [0] * len(x.shape), list(sizes(x))
    starts[axis], lengths[axis] = start, length
    return ops.slice(x, starts, lengths)


def ceil_div(x, y):
    return (x + y - 1) // y
