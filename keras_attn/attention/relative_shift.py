"""What queries have to do with the distances of keys, arranged by keys."""

from keras import ops

from keras_attn.attention.positions import PositionRange
from keras_attn.ops.shapes import size, sizes, slice_axis


def relative_shift(products, num_keys):
    """Row t of `products` (B, N, T, T + S) from place T - 1 - t on, `num_keys` long: (B, N, T, S).

    Where the columns of `products` are distances from the longest down, those of the result are
    keys in their order. The last column is not looked at: it is there so that each row, when all
    are read as rows that are one place shorter, begins one place earlier than the one before. No
    gather is needed, whose gradient would add up pair by pair.
    """
    batch, num_heads, length, width = sizes(products)
    x = ops.reshape(products, (batch, num_heads, length * width))
    x = slice_axis(x, length - 1, length * (width - 1), axis=2)
    x = ops.reshape(x, (batch, num_heads, length, width - 1))
    return slice_axis(x, 0, num_keys, axis=3)


def distances_between(query_positions, key_positions):
    """All differences of two `PositionRange`s as one; None for positions in no such order."""
    both = query_positions, key_positions
    if not all(isinstance(x, PositionRange) for x in both) or len({x.step for x in both}) > 1:
        return None
    step = key_positions.step
    lowest = query_positions.start - key_positions.start - (key_positions.length - 1) * step
    return PositionRange(lowest, query_positions.length + key_positions.length - 1, step)


def table_columns(distances):
    """The distances that a table's columns stand for: from the last down, and one to spare."""
    return PositionRange(_last(distances), distances.length + 1, -distances.step).tensor()


def distance_products(query, table, distances, needed):
    """Dot products of each query with the column of its distance from each key.

    Args:
        query: (B, N, T, H).
        table: (N, H, L + 1), or (H, L + 1) for all heads, with columns for what
            `table_columns(distances)` gives.
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


def _last(progression):
    return progression.start + (progression.length - 1) * progression.step
