"""Two streams of activations that the backward pass can reconstruct from their last values."""

from keras import ops

from keras_attn.backend import per_backend
from keras_attn.backend.remat import remat
from keras_attn.backend.remat_scope import commit


def reversible(functions, first, second, operands=(), *, add_loss):
    """Return the pair of two streams after all functions: add to one, read the other, swap them.

        (a, b) -> (b, a + f(b))

    From (b, c) this is undone by a = c - f(b). On TensorFlow the backward pass does so, and memory
    holds the last pair, the operands and the results inside one function, whatever the number of
    functions. Other backends keep each b and apply each function with `remat`.

    Random numbers, changes of variables and `add_loss` are as in `remat`.

    `functions` are of b and the operands, and return a tensor like b; `first` and `second` are
    floating tensors of one shape and dtype.
    """
    pair, losses, changes = reversible_tensors(functions, first, second, operands, add_loss)
    commit(changes, losses, add_loss)
    return pair


@per_backend
def reversible_tensors(functions, first, second, operands, add_loss):
    """Return the last pair, the losses, and pairs of a variable and its new value."""
    for function in functions:
        change = remat(function, second, *operands, add_loss=add_loss)
        first, second = second, first + ops.cast(change, first.dtype)
    return (first, second), (), ()
