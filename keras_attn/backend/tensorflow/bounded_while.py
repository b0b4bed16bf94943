"""`bounded_while` in a TensorFlow graph."""

import tensorflow as tf

from keras_attn.backend.remat_scope import RematScope
from keras_attn.compat.tensorflow_control_flow import has_gradient


def can_loop(tensors):
    return not tf.executing_eagerly() and has_gradient(tensors)


def loop_in_graph(condition, step, state, max_steps, add_loss):
    # The first step is before the loop: it shows which variables a step changes, such as the
    # state of a random number generator, and computes the loop's invariants.
    with RematScope() as scope:
        state = step(0, state)
    if scope.contains_remat:
        scope.commit(add_loss)
        for number in range(1, max_steps):
            state = step(number, state)
        return state
    variables = [variable for variable, _ in scope.changes()]
    values = [value for _, value in scope.changes()]

    def total(losses):
        return sum((tf.reduce_sum(tf.cast(loss, tf.float32)) for loss in losses), tf.zeros(()))

    def body(number, state, values, loss):
        # A tensor made inside the loop must not be kept outside: values and losses are loop state.
        with RematScope(zip(variables, values, strict=True)) as inside:
            new = step(number, state)
        tf.nest.map_structure(lambda x, before: x.set_shape(before.shape), new, state)
        changes = {id(variable): value for variable, value in inside.changes()}
        values = [changes[id(variable)] for variable in variables]
        return number + 1, new, values, loss + total(inside.losses)

    _, state, values, loss = tf.while_loop(
        lambda number, state, values, loss: condition(state),
        body,
        (tf.constant(1), state, values, total(scope.losses)),
        maximum_iterations=max_steps - 1,
    )
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
    if scope.losses:
        add_loss(loss)
    return state
