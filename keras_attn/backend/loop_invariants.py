"""Values that a loop needs at every step and that no step changes."""

import contextlib
import threading

import keras

from keras_attn.backend.operations import read

_scope = threading.local()


@contextlib.contextmanager
def loop_invariants(variables=()):
    """Compute each `loop_invariant` inside the context once, and read `variables` once.

    A graph computes each where it is first requested: one step before the loop finds them all. What
    the values are computed from does not change inside the context.
    """
    outer, _scope.values = getattr(_scope, "values", None), {}
    values = [(variable, read(variable)) for variable in variables]
    try:
        # Without variables it would only keep layers from making theirs.
        with keras.StatelessScope(values) if values else contextlib.nullcontext():
            yield
    finally:
        _scope.values = outer


def in_loop_invariants():
    """Return True inside a `loop_invariants` context of this thread."""
    return getattr(_scope, "values", None) is not None


def loop_invariant(owner, name, compute):
    """Return `compute()`, or inside `loop_invariants` its first result for `owner` and `name`.

    The owner is a layer with its weights, a tensor from which alone the value follows, or a tuple
    of all such objects. Layers that get the same tensors in a step then compute it once a step.
    """
    values = getattr(_scope, "values", None)
    if values is None:
        return compute()
    owners = owner if isinstance(owner, tuple) else (owner,)
    key = (*map(id, owners), name)
    if key not in values:
        values[key] = owner, compute()  # the owner too: another object could get its id
    return values[key][1]
