"""Contenders of known cost or fault, in a module of their own: it imports no Keras."""

import time

from recipes.benchmarks.workload import Task


def sleeping(seconds):
    return Task(call=lambda: time.sleep(seconds), units=10, facts={"seconds": seconds})


def missing():
    import a_library_that_nobody_has  # noqa: F401


def broken():
    raise ValueError("no such size")


def printing():
    return Task(call=lambda: print("a line that is not an answer"))


def dying():
    return Task(call=_die_at_the_fourth_call())


def failing_late():
    return Task(call=_die_at_the_fourth_call(ValueError("too late")))


def _die_at_the_fourth_call(error=SystemExit(7)):
    calls = []

    def call():
        calls.append(1)
        if len(calls) == 4:  # After the first call and two to warm up: in the first repetition.
            raise error

    return call
