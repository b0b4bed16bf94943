"""Values that a loop needs at every step and that no step changes."""

import contextlib
import threading

import keras

from keras_attn.backend.operations import read


class LoopScope(threading.local):
    """The invariants of this thread's loop.

    Attributes:
        values: dict of the values by owner and name; None outside of `loop_invariants`. Callers
            read it to skip `loop_invariant` where no loop is open.
        prepared: `PreparedWeights` of the export that is written, whose `scope` reads variables and
            whose `read` gives the value of a `weights_invariant`; None outside of the writing.
    """

    values = prepared = None


loop_scope = LoopScope()


@contextlib.contextmanager
def loop_invariants(variables=()):
    """Compute each `loop_invariant` inside the context once, and read `variables` once.

    A graph computes a value where it is first asked for, so one step is taken before the loop. What
    the values are computed from must not change inside the context.
    """
    outer, loop_scope.values = loop_scope.values, {}
    try:
        with _scope(variables):
            yield
    finally:
        loop_scope.values = outer


def _scope(variables):
    """Return a context in which the variables have the values that they have now."""
    if not variables:  # a scope would only keep layers from making theirs
        return contextlib.nullcontext()
    if loop_scope.prepared is not None:
        return loop_scope.prepared.scope(variables)
    return keras.StatelessScope([(variable, read(variable)) for variable in variables])


def in_loop_invariants():
    """Return True inside a `loop_invariants` context of this thread."""
    return loop_scope.values is not None


def loop_invariant(owner, name, compute):
    """Return `compute()`, or inside `loop_invariants` its first result for `owner` and `name`.

    The value must follow from the owner alone: a layer with its weights, a tensor, or a tuple of
    several. Layers that get the same tensors in a step share what follows from them.
    """
    values = loop_scope.values
    if values is None:
        return compute()
    owners = owner if isinstance(owner, tuple) else (owner,)
    key = (*map(id, owners), name)
    if key not in values:
        values[key] = owner, compute()  # the owner too: another object could get its id
    return values[key][1]


def weights_invariant(layer, name, compute):
    """Return a `loop_invariant` that follows from the weights of a layer, whatever the inputs are.

    That of an export is a variable, which is computed when the export is loaded.
    """
    prepared = loop_scope.prepared
    read = compute if prepared is None else lambda: prepared.read(layer, name, compute)
    return loop_invariant(layer, name, read)
