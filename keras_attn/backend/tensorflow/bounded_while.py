"""`bounded_while` in a TensorFlow graph."""

import tensorflow as tf

from keras_attn.backend.remat_scope import Record
from keras_attn.compat.tensorflow_control_flow import has_gradient


def can_loop(tensors):
    """Whether a loop over these tensors is one of a graph, and has a gradient."""
    return not tf.executing_eagerly() and has_gradient(tensors)


def bounded_while(goes_on, step, state, most, *, add_loss):
    # The first step stands before the loop: it tells which variables a step changes, such as the
    # state of a random number generator, and makes what is computed once.
    with Record() as record:
        state = step(0, state)
    if record.recomputes:
        _carry_out(record.changes(), record.losses, add_loss)
        for number in range(1, most):
            state = step(number, state)
        return state
    variables = [variable for variable, _ in record.changes()]
    values = [value for _, value in record.changes()]

    def total(losses):
        return sum((tf.reduce_sum(tf.cast(loss, tf.float32)) for loss in losses), tf.zeros(()))

    def body(number, state, values, loss):
        # Nothing made inside a loop may be kept outside: values and losses go through it.
        with Record(zip(variables, values, strict=True)) as inside:
            new = step(number, state)
        tf.nest.map_structure(lambda x, before: x.set_shape(before.shape), new, state)
        changes = {id(variable): value for variable, value in inside.changes()}
        values = [changes[id(variable)] for variable in variables]
        return number + 1, new, values, loss + total(inside.losses)

    _, state, values, loss = tf.while_loop(
        lambda number, state, values, loss: goes_on(state),
        body,
        (tf.constant(1), state, values, total(record.losses)),
        maximum_iterations=most - 1,
    )
    losses = [loss] if record.losses else []
    _carry_out(zip(variables, values, strict=True), losses, add_loss)
    return state


def _carry_out(changes, losses, add_loss):
    """What has waited in a record."""
    for variable, value in changes:
        variable.assign(value)
    for loss in losses:
        add_loss(loss)
