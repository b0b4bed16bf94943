"""Rematerialisation: the backward pass computes again what it needs, instead of keeping it."""

import functools
import math

import keras
from keras import backend, ops, tree

from keras_attn.backend import per_backend
from keras_attn.backend.remat_scope import RematScope, commit

# The inputs of so few steps take less memory than what one step computes: to keep only some of
# them would cost time and save little.
MAX_UNSEGMENTED = 16


def remat(function, *arguments, add_loss):
    """Return `function(*arguments)`; the backward pass computes the function again.

    The second run draws the same random numbers from `keras.random`, and changes of variables
    happen once. Memory holds the arguments and the results.

    Args:
        function: returns nested tensors, the first one floating. Tensors by which it is
            differentiated are arguments or trainable weights of Keras layers.
        arguments: nested tensors; other values among them are passed as they are.
        add_loss: the method of the calling layer, for the losses that layers add inside.
    """
    leaves, shape = tree.flatten(arguments), None
    tensors = [leaf for leaf in leaves if ops.is_tensor(leaf)]

    def on_tensors(*tensors):
        nonlocal shape
        tensors = iter(tensors)
        filled = [next(tensors) if ops.is_tensor(leaf) else leaf for leaf in leaves]
        results = function(*tree.pack_sequence_as(arguments, filled))
        shape = tree.map_structure(lambda leaf: None, results)
        return tree.flatten(results)

    results, losses, changes = remat_tensors(on_tensors, tensors)
    commit(changes, losses, add_loss)
    return tree.pack_sequence_as(shape, results)


def remat_chain(functions, x, arguments, *, add_loss, layers=()):
    """Apply L functions of x and nested arguments one after another, each with `remat`.

        x_l, rest_l = function_l(x_{l-1}, arguments_l)

    Beside the arguments and the rest, memory holds the results inside one function and some of the
    x_l. Of more than `MAX_UNSEGMENTED` functions these are about 2 sqrt(L), at the price of a
    second recomputation: first of the x_l from every sqrt(L)-th one, then inside each function.

    Return the last x and the list of rest_l. `arguments` is a list of L nested tensors. `layers`
    may give the layer of each function, if the functions differ in nothing else and read nothing
    but it and their arguments: a graph is then built once for all layers of one kind.
    """

    def plain(number, x, own):
        return remat(functions[number], x, own, add_loss=add_loss)

    step = share_traces(functions, layers, plain, add_loss) if layers else plain
    length = 1 if len(functions) <= MAX_UNSEGMENTED else math.isqrt(len(functions))

    def segment(start, x, arguments):
        rests = []
        for number, own in enumerate(arguments, start):
            x, rest = step(number, x, own)
            rests.append(rest)
        return x, rests

    run = segment if length == 1 else functools.partial(remat, segment, add_loss=add_loss)
    rests = []
    for start in range(0, len(functions), length):
        x, rest = run(start, x, arguments[start : start + length])
        rests += rest
    return x, rests


def chain_recomputations(count):
    """Return how often the backward pass of a `remat_chain` computes each of its functions."""
    return 1 if count <= MAX_UNSEGMENTED else 2


def chain_states(count):
    """Return how many of its states a `remat_chain` keeps, those inside one segment included."""
    return count if count <= MAX_UNSEGMENTED else 2 * math.isqrt(count)


@per_backend
def share_traces(functions, layers, plain, add_loss, recomputes=True):
    """Return `plain`, or a function of the same arguments that builds a graph once for a kind.

    `plain` applies the function of a number to x and its arguments, with `remat` if it
    `recomputes`.
    """
    return plain


@per_backend
def remat_tensors(function, tensors):
    """Apply `remat` to a function of tensors that returns a list of tensors.

    Return the results, the losses that layers added, and pairs of a variable and its new value.
    """
    changed, states = [], None

    def run(*tensors):
        nonlocal changed, states
        # JAX repeats what it has traced; torch runs the function again.
        again = states if backend.backend() == "torch" and states is not None else ()
        with RematScope(again) as scope:
            results = function(*tensors)
        states = scope.states if states is None else states
        changes = scope.changes()
        changed = [variable for variable, _ in changes]
        return results, scope.losses, [value for _, value in changes]

    if backend.backend() != "numpy":
        run = keras.remat(run)
    results, losses, values = run(*tensors)
    return results, losses, zip(changed, values, strict=True)


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
