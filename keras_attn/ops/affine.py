"""Reshaping without asking for shapes."""

from keras import ops


def known_shape(x):
    """The shape of `x`, with -1 for a batch size that is its only unknown.

    To ask for a size that is not known is several operations in a graph, and a step of decoding is
    made of operations that take no longer than these.
    """
    if x.shape[0] is None and None not in x.shape[1:]:
        return (-1, *x.shape[1:])
    return ops.shape(x)


def flatten_rows(x):
    """(B, T, D) -> (B * T, D), and a function that takes (B * T, F) back to (B, T, F); any rank.

    Keras's product of three axes with two asks for all sizes, even those that are known.
    """
    if len(x.shape) == 2:
        return x, lambda y: y

    def unflatten(y):
        return ops.reshape(y, (*known_shape(x)[:-1], y.shape[-1]))

    return ops.reshape(x, (-1, x.shape[-1])), unflatten
