"""`repeat_while` in a TensorFlow graph."""

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from keras_attn.ops.record import Record


def can_loop(tensors):
    """Whether a loop over these tensors is one of a graph, and has a gradient.

    XLA asks for every shape as a constant, but what the backward pass takes from a loop's steps is
    none: so all sizes must be known as the graph is made, when TensorFlow makes constants of them.
    """
    if tf.executing_eagerly():
        return False
    if not control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        return True
    tensors = [x for x in tf.nest.flatten(tensors) if tf.is_tensor(x)]
    return all(x.shape.is_fully_defined() for x in tensors)


def repeat_while(goes_on, step, state, most, *, add_loss):
    # The first step stands before the loop: it tells which variables a step changes, such as the
    # state of a random number generator, and makes what is computed once.
    with Record() as record:
        state = step(0, state)
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
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
    if record.losses:
        add_loss(loss)
    return state
