"""Less memory for more time: what the backward pass needs is computed again instead of kept."""

import math

import keras
from keras import backend, ops, tree

from keras_attn.backend.remat_scope import Record

# Of so few steps all inputs take less memory than what one step computes: to keep only some of
# them would cost time and save little.
FEW = 16


def recompute(function, *arguments, add_loss):
    """`function(*arguments)`, which the backward pass computes again instead of keeping it.

    The second time it draws the same random numbers from `keras.random`, and what it changes in
    variables stays changed once. Memory holds the arguments and the results.

    Args:
        function: gives nested tensors, the first one floating. Tensors that it is to be
            differentiated by are arguments or trainable weights of Keras layers.
        arguments: nested tensors; other values among them are passed as they are.
        add_loss: the method of the layer that calls this, for the losses that layers add inside.

    Returns:
        What the function gives.
    """
    leaves = tree.flatten(arguments)
    given = [i for i, leaf in enumerate(leaves) if ops.is_tensor(leaf)]
    tensors, shape = [leaves[i] for i in given], None
    others = [None if i in given else leaf for i, leaf in enumerate(leaves)]
    structure = tree.map_structure(lambda leaf: None, arguments)

    def on_tensors(*tensors):
        nonlocal shape
        filled = list(others)
        for i, tensor in zip(given, tensors, strict=True):
            filled[i] = tensor
        results = function(*tree.pack_sequence_as(structure, filled))
        shape = tree.map_structure(lambda leaf: None, results)
        return tree.flatten(results)

    results, losses, changes = _of_backend()(on_tensors, tensors)
    for variable, value in changes:
        variable.assign(value)
    for loss in losses:
        add_loss(loss)
    return tree.pack_sequence_as(shape, results)


def chain(functions, x, arguments, *, add_loss):
    """x through functions one after another, each computed again in the backward pass.

        x_l, rest_l = function_l(x_{l-1}, arguments_l)

    Beside the arguments and the rest, memory holds what one function computes and some of the x_l.
    Of more than `FEW` functions these are about 2 sqrt(L), at the price of a second recomputation:
    first from every sqrt(L)-th x_l those after it, then what each function computes.

    Args:
        functions: list of L functions of x and nested arguments, as in `recompute`.
        arguments: list of L nested tensors.

    Returns:
        The last x and the list of what else each function gave.
    """
    length = 1 if len(functions) <= FEW else math.isqrt(len(functions))

    def segment(start, x, arguments):
        rests = []
        for function, given in zip(functions[start : start + length], arguments, strict=True):
            x, rest = recompute(function, x, given, add_loss=add_loss)
            rests.append(rest)
        return x, rests

    rests = []
    for start in range(0, len(functions), length):
        part = arguments[start : start + length]
        if length == 1:
            x, rest = segment(start, x, part)
        else:
            x, rest = recompute(segment, start, x, part, add_loss=add_loss)
        rests += rest
    return x, rests


def _of_backend():
    if backend.backend() == "tensorflow":
        from keras_attn.backend.tensorflow.remat import recompute

        return recompute
    return _portable


def _portable(function, tensors):
    changed, states = [], None

    def run(*tensors):
        nonlocal changed, states
        # JAX repeats what it has traced; torch runs the function again.
        again = states if backend.backend() == "torch" and states is not None else ()
        with Record(again) as record:
            results = function(*tensors)
        states = record.states if states is None else states
        changes = record.changes()
        changed = [variable for variable, _ in changes]
        return results, record.losses, [value for _, value in changes]

    if backend.backend() != "numpy":
        run = keras.remat(run)
    results, losses, values = run(*tensors)
    return results, losses, zip(changed, values, strict=True)
