"""Values that a loop needs at every step and that no step changes."""

import contextlib
import threading

_scope = threading.local()


@contextlib.contextmanager
def loop_invariants():
    """Inside, `once` computes a value at its first call only.

    A graph computes each value where it is first asked for: run one step before the loop, and the
    loop's own steps find everything there.
    """
    outer, _scope.values = values_in_scope(), {}
    try:
        yield
    finally:
        _scope.values = outer


def values_in_scope():
    """What has been computed in the innermost `loop_invariants`; None outside."""
    return getattr(_scope, "values", None)


def once(owner, name, compute):
    """`compute()`, or what it returned before for the same `owner` and `name`."""
    values = values_in_scope()
    if values is None:
        return compute()
    key = (id(owner), name)
    if key not in values:
        values[key] = compute()
    return values[key]
