"""A step repeated until nobody goes on."""

from keras import backend


def bounded_while(goes_on, step, state, most, *, reads=(), add_loss):
    """`state = step(n, state)` for n = 0, 1, ... while `goes_on(state)`, at most `most` times.

    The first step is always taken. A TensorFlow graph has a loop that ends in time, with a
    gradient; random numbers, changes of variables and losses inside it are those of the steps
    taken. All steps are taken where the gradient of such a loop does not exist: in what JAX traces,
    in what XLA is to compile for sizes that are not known yet, and of steps in which something is
    computed again for its gradient. So a step must change nothing that counts once nobody goes on.

    Args:
        goes_on: function of the state that gives a bool scalar.
        step: function of n, an int or an int32 scalar, and the state. Same shapes out as in.
        state: nested tensors.
        most: int.
        reads: nested tensors, what else the steps read.
        add_loss: function called with the losses that layers add inside a loop of a graph.

    Returns:
        The last state.
    """
    if backend.backend() == "tensorflow" and most > 1:
        from keras_attn.backend.tensorflow.bounded_while import bounded_while, can_loop

        if can_loop((state, reads)):
            return bounded_while(goes_on, step, state, most, add_loss=add_loss)
    state = step(0, state)
    for number in range(1, most):
        going = goes_on(state)
        if _is_known(going) and not going:
            break
        state = step(number, state)
    return state


def _is_known(value):
    """Whether a tensor has a value yet, or is of a graph that runs later."""
    if backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.executing_eagerly()
    if backend.backend() == "jax":
        import jax

        return not isinstance(value, jax.core.Tracer)
    return True
