"""`recompute` on TensorFlow: eagerly, in graphs and under XLA."""

import tensorflow as tf

from keras_attn.backend.remat_scope import Record, is_recomputed, mark_recomputed


def recompute(function, tensors):
    mark_recomputed()
    if is_recomputed():
        results, record = first_run(function, tensors)
        return results, record.losses, record.changes()
    record = None

    @tf.custom_gradient
    def run(*tensors):
        nonlocal record
        results, record = first_run(function, tensors)
        states = record.states

        def gradient(*upstream, variables=()):
            late = after(first_float(upstream))
            again = [late(x) if x.dtype.is_floating else x for x in tensors]
            floats = [x for x in again if x.dtype.is_floating]
            with tf.GradientTape() as tape, Record(states, late) as record:
                tape.watch(floats)
                results = function(*again)
            by_floats, by_variables = gradients(
                tape, [*results, *record.losses], upstream, floats, variables
            )
            by_tensors = place(by_floats, tensors)
            return (by_tensors, by_variables) if variables else by_tensors

        return (*results, *record.losses), gradient

    found = run(*tensors)
    count = len(found) - len(record.losses)
    return found[:count], found[count:], record.changes()


def first_run(function, tensors):
    """The results, of which no tape keeps what they are computed from, and the record."""
    still = [tf.stop_gradient(x) if x.dtype.is_floating else x for x in tensors]
    with Record(late=after(first_float(tensors)), is_first=True) as record:
        results = function(*still)
    return results, record


def after(tensor):
    """A function that gives back a number once `tensor` is there.

    A graph computes whatever can be computed, all random numbers at its start for one, and once
    only if it is asked for the same twice. What goes through this function is something else, by
    a zero that no compiler can tell beforehand: whether the tensor begins with what is no number.
    """
    begins = tf.reduce_any(tf.math.is_nan(tf.reshape(tensor, [-1])[:1]))
    return lambda x: x + tf.cast(begins, x.dtype)


def gradients(tape, results, upstream, floats, variables):
    """By floats and variables; zero where nothing depends on them."""
    found = tape.gradient(
        results, [*floats, *variables], list(upstream), tf.UnconnectedGradients.ZERO
    )
    by_floats, by_variables = found[: len(floats)], found[len(floats) :]
    # The pass goes on from here when all is there: a graph would else put the gradients by
    # variables off, and what they are computed from would wait in memory.
    with tf.control_dependencies(by_variables):
        return [tf.identity(x) for x in by_floats], by_variables


def first_float(tensors):
    return next(x for x in tensors if x.dtype.is_floating)


def place(by_floats, tensors):
    """The gradients by the floating ones of `tensors`, and None by the others."""
    by_floats = iter(by_floats)
    return [next(by_floats) if x.dtype.is_floating else None for x in tensors]
