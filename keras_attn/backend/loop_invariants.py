"""Values that a loop needs at every step and that no step changes."""

import contextlib
import threading

_scope = threading.local()


@contextlib.contextmanager
def loop_invariants():
    """Compute each `loop_invariant` inside the context once.

    A graph computes each where it is first requested: one step before the loop finds them all.
    """
    outer, _scope.values = getattr(_scope, "values", None), {}
    try:
        yield
    finally:
        _scope.values = outer


def in_loop_invariants():
    """Return True inside a `loop_invariants` context of this thread."""
    return getattr(_scope, "values", None) is not None


def loop_invariant(owner, name, compute):
    """Return `compute()`, or inside `loop_invariants` its first result for `owner` and `name`."""
    values = getattr(_scope, "values", None)
    if values is None:
        return compute()
    key = (id(owner), name)
    if key not in values:
        values[key] = compute()
    return values[key]
