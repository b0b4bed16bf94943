"""Rematerialisation on TensorFlow: eagerly, in graphs and under XLA."""

import tensorflow as tf

from keras_attn.backend.remat_scope import RematScope, in_first_run, mark_remat
from keras_attn.backend.tensorflow.delays import delay_until, first_float
from keras_attn.backend.tensorflow.shared_remat import share_traces

__all__ = ["remat_tensors", "share_traces"]


def remat_tensors(function, tensors):
    mark_remat()
    if in_first_run():
        results, scope = first_run(function, tensors)
        return results, scope.losses, scope.changes()
    scope = None

    @tf.custom_gradient
    def run(*tensors):
        nonlocal scope
        results, scope = first_run(function, tensors)
        states = scope.states

        def gradient(*upstream, variables=()):
            delay = delay_until(first_float(upstream))
            again = [delay(x) if x.dtype.is_floating else x for x in tensors]
            floats = [x for x in again if x.dtype.is_floating]
            with tf.GradientTape() as tape, RematScope(states, delay) as scope:
                tape.watch(floats)
                results = function(*again)
            results = [*results, *scope.losses]
            by_floats, by_variables = gradients(tape, results, upstream, floats, variables)
            by_tensors = with_none_for_integers(by_floats, tensors)
            return (by_tensors, by_variables) if variables else by_tensors

        return (*results, *scope.losses), gradient

    found = run(*tensors)
    count = len(found) - len(scope.losses)
    return found[:count], found[count:], scope.changes()


def first_run(function, tensors):
    """Run the function without a tape; return its results and the scope."""
    constants = [tf.stop_gradient(x) if x.dtype.is_floating else x for x in tensors]
    delay = delay_until(first_float(tensors))
    with RematScope(delay=delay, is_first_run=True) as scope:
        results = function(*constants)
    return results, scope


def gradients(tape, results, upstream, floats, variables):
    """Return gradients by floats and by variables; zero if the results do not depend on them."""
    sources, zero = [*floats, *variables], tf.UnconnectedGradients.ZERO
    found = tape.gradient(results, sources, list(upstream), zero)
    by_floats, by_variables = found[: len(floats)], found[len(floats) :]
    # The backward pass continues after all gradients are computed: a graph would else postpone
    # those by variables, and what they are computed from would wait in memory.
    with tf.control_dependencies(by_variables):
        return [tf.identity(x) for x in by_floats], by_variables


def with_none_for_integers(by_floats, tensors):
    """Return the gradients by the floating ones of `tensors`, and None for the others."""
    by_floats = iter(by_floats)
    return [next(by_floats) if x.dtype.is_floating else None for x in tensors]
