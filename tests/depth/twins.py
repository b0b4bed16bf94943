"""`keras_attn.backend.remat.reversible` as a plain loop that keeps all results."""

from keras import ops


def in_turn(functions, first, second, operands=(), *, add_loss=None):
    for function in functions:
        change = function(second, *operands)
        first, second = second, first + ops.cast(change, first.dtype)
    return first, second
