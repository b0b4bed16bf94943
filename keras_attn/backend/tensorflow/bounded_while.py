"""`bounded_while` in a TensorFlow graph."""

import tensorflow as tf

from keras_attn.backend.remat_scope import RematScope, commit
from keras_attn.compat.tensorflow_control_flow import has_gradient


def loop_in_graph(condition, step, state, max_steps, reads, add_loss):
    if tf.executing_eagerly() or not has_gradient((state, reads)):
        return None
    # The first step is before the loop: it shows which variables a step changes, such as the state
    # of a random number generator, and computes the loop's invariants.
    with RematScope() as scope:
        state = step(0, state)
    if scope.contains_remat:
        commit(scope.changes(), scope.losses, add_loss)
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
    commit(zip(variables, values, strict=True), [loss] if scope.losses else (), add_loss)
    return state
