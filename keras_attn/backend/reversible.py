"""Two streams that can be reconstructed from what they end as."""

from keras import backend, ops

from keras_attn.backend.remat import recompute


def couple(functions, first, second, operands=(), *, add_loss):
    """Each function's result goes to the one stream, from the other, and the two change places.

        (a, b) -> (b, a + f(b))

    From (b, c) this is undone by a = c - f(b). On TensorFlow the backward pass does so, and memory
    holds the last pair, the operands and what one function computes, whatever the number of
    functions. Other backends keep each b, and compute each function again.

    The second time, a function draws the same random numbers from `keras.random`; what it changes
    in variables stays changed once.

    Args:
        functions: list of functions of b and the operands, which give a tensor like b.
        first, second: floating tensors of one shape and dtype.
        operands: tensors.
        add_loss: the method of the layer that calls this, for the losses that layers add inside.

    Returns:
        The pair after all functions.
    """
    if backend.backend() != "tensorflow":
        for function in functions:
            change = recompute(function, second, *operands, add_loss=add_loss)
            first, second = second, first + ops.cast(change, first.dtype)
        return first, second
    from keras_attn.backend.tensorflow.reversible import couple

    pair, losses, changes = couple(functions, first, second, operands)
    for variable, value in changes:
        variable.assign(value)
    for loss in losses:
        add_loss(loss)
    return pair
