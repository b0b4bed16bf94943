"""Relative shift: turn logits by distance into logits by key."""

from keras import ops

from keras_attn.attention.inputs import PositionRange
from keras_attn.ops.shapes import size, sizes, slice_axis


def relative_shift(products, num_keys):
    """Select `num_keys` columns of row t of `products` (B, N, T, T + S) from T - 1 - t on.

    If the columns of `products` are distances from the longest down, those of the result
    (B, N, T, S) are keys in their order. The last column is unused: with it, rows that are read as
    one column shorter each begin one column earlier than the row before. This needs no gather, whose
    gradient would add up pair by pair.
    """
    batch, num_heads, length, width = sizes(products)
    x = ops.reshape(products, (batch, num_heads, length * width))
    x = slice_axis(x, length - 1, length * (width - 1), axis=2)
    x = ops.reshape(x, (batch, num_heads, length, width - 1))
    return slice_axis(x, 0, num_keys, axis=3)


def distances_between(query_positions, key_positions):
    """Return all differences of two `PositionRange`s as one; None for other positions."""
    both = query_positions, key_positions
    if not all(isinstance(x, PositionRange) for x in both) or len({x.step for x in both}) > 1:
        return None
    step = key_positions.step
    lowest = query_positions.start - key_positions.start - (key_positions.length - 1) * step
    return PositionRange(lowest, query_positions.length + key_positions.length - 1, step)


def table_columns(distances):
    """Return the distances of a table's columns: from the last down, and an unused one."""
    return PositionRange(_last(distances), distances.length + 1, -distances.step).tensor()


def distance_products(query, table, distances, needed):
    """Compute the dot products of each query with the column of its distance from each key.

    Args:
        query: (B, N, T, H).
        table: (N, H, L + 1), or (H, L + 1) for all heads, with columns for
            `table_columns(distances)`.
        distances: `PositionRange` of L.
        needed: the `distances_between` these queries and S keys, all among `distances`.

    Returns:
        (B, N, T, S).
    """
    length = size(query, 2)
    num_keys = needed.length - length + 1
    single = query.shape[2] == 1
    width = num_keys if single else needed.length + 1
    if not isinstance(width, int) or table.shape[-1] != width:
        first = (_last(distances) - _last(needed)) // distances.step
        table = slice_axis(table, first, width, axis=len(table.shape) - 1)
    if single:  # an einsum, as in keras_attn.attention.softmax
        columns = "nhw" if len(table.shape) == 3 else "hw"
        products = ops.einsum(f"bnh,{columns}->bnw", ops.squeeze(query, 2), table)
        return ops.expand_dims(products, 2)
    return relative_shift(ops.matmul(query, table), num_keys)


def _last(positions):
    return positions.start + (positions.length - 1) * positions.step
