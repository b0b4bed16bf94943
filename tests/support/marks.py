"""Parameters of slow tests."""

import pytest


def slow(*values):
    """Return the parameter of a slow test."""
    return pytest.param(*values, marks=pytest.mark.slow)


def all_slow(cases):
    """Return slow parameters, each a value or a tuple of values."""
    return [slow(*case) if isinstance(case, tuple) else slow(case) for case in cases]


def slow_but(fast, cases):
    """Return parameters, of which those that are not among the fast ones are slow."""
    assert all(case in cases for case in fast), "a fast value is not among the cases"
    return [case if case in fast else all_slow([case])[0] for case in cases]
