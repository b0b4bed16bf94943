"""Relative shift: turn logits by distance into logits by key."""

from keras import ops

from keras_attn.attention.inputs import PositionRange
from keras_attn.ops.shapes import size, sizes, slice_axis


def relative_shift(products, num_keys):
    """Select `num_keys` columns of row t of `products` (B, N, T, T + S) from T - 1 - t on.

    If the columns of `products` are distances from the longest down, those of the result
    (B, N, T, S) are keys in their order. The last column is unused: with it, rows read one column
    shorter begin one column earlier than the row before. A gather's gradient would be slow.
    """
    if products.shape[2] == 0:  # no row from which a column could be taken
        return slice_axis(products, 0, num_keys, axis=3)
    batch, num_heads, length, width = sizes(products)
    first, row = length - 1, width - 1
    if not isinstance(length, int):  # in a graph it may be 0
        first, row = ops.maximum(first, 0), ops.maximum(row, num_keys)
    x = ops.reshape(products, (batch, num_heads, length * width))
    x = slice_axis(x, first, length * row, axis=2)
    x = ops.reshape(x, (batch, num_heads, length, row))
    return slice_axis(x, 0, num_keys, axis=3)


def table_columns(distances):
    """Return the distances of a table's columns: from the last down, and an unused one."""
    return PositionRange(distances.last, distances.length + 1, -distances.step).tensor()


def table_products(length, num_keys, head_dim):
    """Return the multiply-adds of `distance_products` for one head and tile."""
    return length * (num_keys if length == 1 else length + num_keys) * head_dim


def distance_products(query, table, distances, needed):
    """Compute products (B, N, T, S) of each query with the column of its distance from each key.

    Args:
        query: (B, N, T, H). distances: `PositionRange` of L.
        table: (N, H, L + 1), or (H, L + 1) for all heads, of `table_columns(distances)`.
        needed: the `distances_between` these queries and S keys, all among `distances`.
    """
    length = size(query, 2)
    num_keys = needed.length - length + 1
    single = query.shape[2] == 1
    width = num_keys if single else needed.length + 1
    if not isinstance(width, int) or table.shape[-1] != width:
        first = (distances.last - needed.last) // distances.step
        table = slice_axis(table, first, width, axis=len(table.shape) - 1)
    if single:  # an einsum, as in keras_attn.attention.softmax
        columns = "nhw" if len(table.shape) == 3 else "hw"
        products = ops.einsum(f"bnh,{columns}->bnw", ops.squeeze(query, 2), table)
        return ops.expand_dims(products, 2)
    return relative_shift(ops.matmul(query, table), num_keys)
