"""A matrix product over the last axis."""

from keras import ops


def flatten_rows(x):
    """(B, T, D) -> (B * T, D), and a function that takes (B * T, F) back to (B, T, F).

    Keras's product of three axes with two spends a dozen small operations on shapes that are not
    known in advance, which is more than the product itself when one token is decoded.
    """
    length = x.shape[1]

    def unflatten(y):
        shape = (-1, 1) if length == 1 else ops.shape(x)[:2]
        return ops.reshape(y, (*shape, y.shape[-1]))

    return ops.reshape(x, (-1, x.shape[-1])), unflatten
