"""Computation on groups of rows, each with weights of its own."""

from keras import ops

from keras_attn.backend import per_backend

BLOCK = 64  # rows that are multiplied by the same weights at once


@per_backend
def map_groups(compute, rows, counts, weights):
    """Return `compute(rows of a group, *weights of the group)` for each of G groups.

    Here all shapes are known from those of the arguments, as compilers want it: each group begins
    at a new block, and each block multiplies a copy of its group's weights.

    Args:
        compute: function of rows (..., R, D) and weights (..., .), which gives (..., R, F).
        rows: (n, D), sorted by group; rows after the last group's stay out.
        counts: int32 (G,). Number of rows of each group, at most n in all.
        weights: tensors (G, .).

    Returns:
        (n, F), with zeros for the rows that stay out.
    """
    total, groups = ops.shape(rows)[0], counts.shape[0]
    block_length = min(BLOCK, rows.shape[0] or BLOCK)
    row_ends = ops.cumsum(counts)
    block_counts = (counts + block_length - 1) // block_length
    block_ends = ops.cumsum(block_counts)
    # Each group's last block may be partly empty, so this many are always enough.
    block = ops.arange(total // block_length + groups, dtype="int32")
    group = _group_of(block, block_ends)  # (blocks,)
    first_row, first_block = row_ends - counts, block_ends - block_counts
    # Slots hold the rows of their block's group, one after another, or nothing.
    rank = ops.expand_dims(block - ops.take(first_block, group), 1) * block_length
    rank = rank + ops.arange(block_length, dtype="int32")  # (blocks, R)
    is_used = ops.reshape(rank < ops.expand_dims(ops.take(counts, group), 1), (-1,))
    row = ops.reshape(ops.expand_dims(ops.take(first_row, group), 1) + rank, (-1,))  # of each slot
    own = ops.arange(total, dtype="int32")
    group_of_row = _group_of(own, row_ends)
    slot = ops.take(first_block * block_length - first_row, group_of_row) + own  # of each row
    to_slots, to_rows = (row, is_used), (slot, own < row_ends[-1])
    blocks = _take_distinct(rows, to_slots, to_rows)
    blocks = ops.reshape(blocks, (-1, block_length, rows.shape[1]))
    result = compute(blocks, *(_take_dense(w, group) for w in weights))
    return _take_distinct(ops.reshape(result, (-1, result.shape[-1])), to_rows, to_slots)


def _take_dense(weights, group):
    """Take the weights of groups; the flat form makes the gradient dense, not `IndexedSlices`."""
    flat = ops.reshape(weights, (weights.shape[0], -1))
    return ops.reshape(ops.take(flat, group, axis=0), (-1, *weights.shape[1:]))


def _group_of(number, ends):
    """Return the group that each number lies in; the last one for numbers beyond all groups."""
    return ops.sum(ops.cast(ops.expand_dims(number, 1) >= ends[:-1], "int32"), axis=1)


def _take_distinct(x, chosen, inverse):
    """Take rows (T, D) of x (S, D), each at most once; the gradient is a gather too.

    Args:
        chosen: pair of int32 (T,) and bool (T,): the row for each place, if there is one, else 0.
        inverse: pair of int32 (S,) and bool (S,): the place of each row, if it has one.
    """

    @ops.custom_gradient
    def run(x):
        def gradient(*args, upstream=None):
            return _take_or_zero(args[0] if upstream is None else upstream, *inverse)

        return _take_or_zero(x, *chosen), gradient

    return run(x)


def _take_or_zero(x, indices, exist):
    rows = ops.take(x, ops.where(exist, indices, 0), axis=0)
    return ops.where(ops.expand_dims(exist, 1), rows, 0)
