"""Sorting and permuting, and the largest numbers of an axis."""

import math

from keras import ops

from keras_attn.backend.operations import gather_rows
from keras_attn.ops.shapes import flatten_rows, sizes


def top_k(x, k):
    """Return the k largest numbers of floats x (..., V), and their int32 indices.

    They are those of `ops.top_k`. The k largest are in the k groups of neighbours with the largest
    maxima, so that of most numbers only a maximum is taken, and a few times sqrt(k V) are sorted.
    """
    size = x.shape[-1]
    if size is None or size < 16 * k:  # sorting few numbers is faster
        best, indices = ops.top_k(x, k)
        return best, ops.cast(indices, "int32")
    width = _group_width(size, k)
    rows, unflatten = flatten_rows(x)
    if size % width:
        rows = ops.pad(rows, [[0, 0], [0, -size % width]], constant_values=-float("inf"))
    groups = ops.reshape(rows, (-1, -(-size // width), width))
    _, chosen = ops.top_k(ops.max(groups, axis=-1), k)
    chosen = ops.cast(chosen, "int32")
    if k > 1:  # of equal numbers the first is taken
        chosen = ops.sort(chosen, axis=-1)
    best, indices = ops.top_k(ops.reshape(gather_rows(groups, chosen), (-1, k * width)), k)
    indices = ops.cast(indices, "int32")
    if k > 1:
        chosen, indices = gather_rows(chosen, indices // width), indices % width
    return unflatten(best), unflatten(chosen * width + indices)


def _group_width(size, k):
    """Return the size of groups with which the fewest numbers are sorted.

    It divides `size` if a size near the ideal does: padding would copy all numbers.
    """
    ideal = math.sqrt(size / k)
    near = range(math.ceil(ideal / 4), int(ideal * 4) + 1)
    divisors = [width for width in near if size % width == 0]
    return min(divisors or [round(ideal)], key=lambda width: size / width + k * width)


def sort_order(numbers, groups=None):
    """Return the stable order that sorts `numbers` (..., S), and its inverse.

    They are int32 (..., S): the index of the number at each rank, and the rank of each index. With
    `groups` (..., S), ints, they sort by group first.
    """
    order = ops.cast(ops.argsort(numbers, axis=-1), "int32")
    if groups is not None:  # stable: a second sort, where one of joint numbers would overflow
        by_group = ops.argsort(ops.take_along_axis(groups, order, axis=-1), axis=-1)
        order = ops.take_along_axis(order, ops.cast(by_group, "int32"), axis=-1)
    return order, ops.cast(ops.argsort(order, axis=-1), "int32")


def row_starts(x):
    """Return int32 (B, N, 1): the first of the B N S rows of x (B, N, S, H) for each head."""
    batch, num_heads, length = sizes(x)[:3]
    heads = ops.arange(batch * num_heads, dtype="int32")
    return ops.reshape(heads, (batch, num_heads, 1)) * length


def permute(x, order, inverse, copies=1):
    """Permute the rows of x (..., H); the gradient is a gather too, not a slower scatter.

    With `copies`, each row stands for so many rows, one after another: of R rows R copies result.

    Args:
        x: (..., H), R rows in all.
        order: int32 (...). The row at each place among all R, or R copies, rows.
        inverse: int32, as `order`. The inverse permutation.
        copies: int. Number of copies of each row.

    Returns:
        The shape of `order`, and H.
    """

    @ops.custom_gradient
    def run(x):
        def gradient(*args, upstream=None):
            back = take_rows(args[0] if upstream is None else upstream, inverse)
            if copies == 1:
                return back
            return ops.sum(ops.reshape(back, (-1, copies, x.shape[-1])), axis=1)

        return take_rows(x, order if copies == 1 else order // copies), gradient

    return run(x)


def take_rows(x, indices):
    """Take rows, the shape of `indices` and H, of x (..., H) by their indices among all rows."""
    return ops.take(ops.reshape(x, (-1, x.shape[-1])), indices, axis=0)
