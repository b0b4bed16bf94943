"""Chains of functions of layers; equal layers can share a graph."""

from keras_attn.backend import per_backend


def chain(step, x, arguments, start=0):
    """Apply a step for each of nested `arguments`; return the last x and the list of rest_l.

    x_l, rest_l = step(l, x_{l-1}, arguments_l),   l = start ..
    """
    rests = []
    for number, given in enumerate(arguments, start):
        x, rest = step(number, x, given)
        rests.append(rest)
    return x, rests


def shared_chain(functions, x, arguments, *, add_loss, layers=()):
    """Apply L functions of x and nested arguments one after another.

        x_l, rest_l = function_l(x_{l-1}, arguments_l)

    Return the last x and the list of rest_l. `arguments` is a list of L nested tensors. `layers`
    may give the layer of each function, if the functions differ in nothing else and read nothing
    but it and their arguments: a graph is then built once for all layers of one kind.
    """

    def plain(number, x, given):
        return functions[number](x, given)

    step = share_graphs(functions, layers, plain, add_loss) if layers else plain
    return chain(step, x, arguments)


@per_backend
def share_graphs(functions, layers, plain, add_loss, remat=False):
    """Return `plain`, or a function of the same arguments that builds a graph once for a kind.

    `plain` applies the function of a number to x and its arguments; with `remat`, so that the
    backward pass computes it again.
    """
    return plain
