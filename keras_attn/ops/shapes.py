"""Shapes of tensors: sizes, padding, slices and heads, for static and dynamic lengths."""

import itertools
import math

from keras import ops

from keras_attn.ops.checks import check_sizes

# Assumed length if a graph is built for any length: long.
UNKNOWN_LENGTH = 2**20


def size(x, axis):
    """Return the size of an axis: an int if it is static, else a tensor."""
    known = x.shape[axis]
    return _all_sizes(x)[axis] if known is None else known


def _all_sizes(x):
    """Return the sizes of all axes as Keras does; refuse a ragged tensor, whose rows have many."""
    sizes = ops.shape(x)
    if any(size is None for size in sizes):
        raise ValueError(
            "A layer needs rows of one length: pad a ragged tensor by `x.to_tensor()`, and pass "
            "`tf.sequence_mask(x.row_lengths())` as the mask of its rows. "
            f"Received: a ragged tensor of shape {tuple(x.shape)}."
        )
    return sizes


def sizes(x):
    """Return the sizes of all axes, as `size` does."""
    return tuple(size(x, axis) for axis in range(len(x.shape)))


def same_shape(shape, other):
    """Return True if two shapes agree in all axes that both know."""
    return len(shape) == len(other) and all(
        a == b or None in (a, b) for a, b in zip(shape, other, strict=True)
    )


def pad(x, front, back, axis=2):
    """Pad an axis with zeros (False) at the front and the back."""
    if isinstance(front, int) and isinstance(back, int) and front == back == 0:
        return x
    widths = [(0, 0)] * len(x.shape)
    widths[axis] = (front, back)
    if x.dtype != "bool":
        return ops.pad(x, widths)
    return ops.cast(ops.pad(ops.cast(x, "int32"), widths), "bool")


def slice_axis(x, start, length, axis):
    """Return x[start : start + length] along an axis.

    The gradient of slicing with brackets takes ten times longer on TensorFlow.
    """
    starts, lengths = [0] * len(x.shape), list(sizes(x))
    starts[axis], lengths[axis] = start, length
    return ops.slice(x, starts, lengths)


def windows_of_axis(x, count, length, axis=0):
    """Return `count` slices of so many entries of an axis, which begin at 0, 1, ..."""
    return [slice_axis(x, start, length, axis) for start in range(count)]


def stack_blocks(x, *counts, block):
    """(B, N, c_1 * c_2 * ... * block, H) -> (c_1, c_2, ..., B, N, block, H)."""
    batch, num_heads, _, width = sizes(x)
    if tuple(x.shape[:2]) == (1, 1):
        # A transpose of axes of one entry: tf2onnx makes it a reshape, and joins that wrongly with
        # the one before where several sizes are unknown.
        return ops.reshape(x, (*counts, 1, 1, block, width))
    x = ops.reshape(x, (batch, num_heads, *counts, block, width))
    first = range(2, 2 + len(counts))
    return ops.transpose(x, (*first, 0, 1, len(x.shape) - 2, len(x.shape) - 1))


def ceil_div(x, y):
    """Return x / y, rounded up."""
    return (x + y - 1) // y


def lesser(x, y):
    """Return the smaller of two sizes: an int if both are ints, else a tensor."""
    return min(x, y) if isinstance(x, int) and isinstance(y, int) else ops.minimum(x, y)


def greater(x, y):
    """Return the greater of two sizes, as `lesser` does."""
    return max(x, y) if isinstance(x, int) and isinstance(y, int) else ops.maximum(x, y)


def known_shape(x):
    """Return the shape of `x`, with -1 for a dynamic batch size if all other sizes are static.

    Reading a dynamic size takes several operations in a graph, as long as those of a decoding step.
    """
    if x.shape[0] is None and None not in x.shape[1:]:
        return (-1, *x.shape[1:])
    return _all_sizes(x)


def flatten_rows(x):
    """Return (B, T, D) as (B * T, D), and a function from (B * T, F) to (B, T, F); any rank.

    Keras's product of three axes with two reads all sizes, even static ones.
    """
    if len(x.shape) == 2:
        return x, lambda y: y
    return ops.reshape(x, (-1, x.shape[-1])), lambda y: rows_to_sequence(y, like=x)


def head_size(hidden_dim, num_heads):
    """Return the size H of each head: `hidden_dim` divided by `num_heads`."""
    check_sizes(hidden_dim=hidden_dim, num_heads=num_heads)
    if hidden_dim % num_heads:
        raise ValueError(
            "`hidden_dim` must be a multiple of `num_heads`. "
            f"Received: hidden_dim={hidden_dim}, num_heads={num_heads}."
        )
    return hidden_dim // num_heads


def merge_heads(x):
    """Merge heads (B, N, T, H) into rows (B * T, N * H)."""
    hidden_dim = x.shape[1] * x.shape[3]
    if x.shape[2] != 1:
        x = ops.transpose(x, (0, 2, 1, 3))
    return ops.reshape(x, (-1, hidden_dim))


def join_heads(x):
    """(B, N, M, H) -> (B * N, M, H)."""
    return ops.reshape(x, (-1, *x.shape[2:]))


def as_axes(sizes):
    """Return the sizes of axes as a tuple: of one size, of several, or of None for none."""
    if sizes is None:
        return ()
    return tuple(sizes) if isinstance(sizes, (list, tuple)) else (sizes,)


def rows_to_sequence(rows, like, axes=None):
    """(B * T, F) -> (B, T, F), for B and T of `like` (B, T, D); as it is for `like` (B, D).

    `axes` are the sizes of several axes in the place of F, their product.
    """
    axes = axes or rows.shape[-1:]
    if len(like.shape) == 2 and len(axes) == 1:
        return rows
    return ops.reshape(rows, (*known_shape(like)[:-1], *axes))


def rows_to_heads(rows, heads, like):
    """(B * T, sum of N * H) -> (B, N, T, H) of each (N, H) in `heads`, for B and T of `like`.

    `like` is (B, T, D), or (B, D) for one position. The columns are those of one group after
    another, of as many as divide each N; those of a group have a part for each (N, H). Devices that
    hold a model by head then cut no group.
    """
    groups = math.gcd(*(count for count, _ in heads))
    widths = [count // groups * width for count, width in heads]
    batch, length = (*known_shape(like)[:-1], 1)[:2]
    is_step = isinstance(length, int) and length == 1  # as in decoding: nothing to transpose
    middle = (groups, 1) if is_step else (length, groups)
    parts = _split(ops.reshape(rows, (batch, *middle, sum(widths))), widths)
    heads_of_parts = []
    for x, (count, width) in zip(parts, heads, strict=True):
        if count != groups:
            axes = (count, 1) if is_step else (length, count)
            x = ops.reshape(x, (batch, *axes, width))
        heads_of_parts.append(x if is_step else ops.transpose(x, (0, 2, 1, 3)))
    return heads_of_parts


def _split(x, widths):
    """Cut the last axis into parts; parts of equal width spare computing where each begins."""
    if len(widths) == 1:
        return [x]
    is_equal = len(set(widths)) == 1
    *ends, _ = itertools.accumulate(widths)
    return ops.split(x, len(widths) if is_equal else ends, axis=-1)
