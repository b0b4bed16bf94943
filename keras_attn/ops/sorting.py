"""Reordering the sequence axis, forth and back."""

from keras import ops

from keras_attn.ops.shapes import sizes


def sort_order(numbers):
    """What sorts `numbers` (..., S), equal ones in their order, and what puts them back.

    Returns:
        int32 (..., S) twice: the index of each place's number, and the place of each index.
    """
    order = ops.cast(ops.argsort(numbers, axis=-1), "int32")
    return order, ops.cast(ops.argsort(order, axis=-1), "int32")


def row_starts(x):
    """int32 (B, N, 1): where each head of x (B, N, S, H) begins among its B N S rows."""
    batch, num_heads, length = sizes(x)[:3]
    heads = ops.arange(batch * num_heads, dtype="int32")
    return ops.reshape(heads, (batch, num_heads, 1)) * length


def permute(x, order, inverse):
    """The rows of x (B, N, S, H) in another order.

    The gradient is gathered in the inverse order, not scattered, which would take longer.

    Args:
        x: tensor. order, inverse: int32 (B, N, S), a permutation of each head's rows and its
            inverse, counted among all B N S rows.
    """

    @ops.custom_gradient
    def run(x):
        def gradient(*args, upstream=None):
            return take_rows(args[0] if upstream is None else upstream, inverse)

        return take_rows(x, order), gradient

    return run(x)


def take_rows(x, indices):
    """Rows of x (B, N, S, H) by their numbers (B, N, T) among all."""
    width = x.shape[3]
    return ops.take(ops.reshape(x, (-1, width)), indices, axis=0)
