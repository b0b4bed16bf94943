"""A loop of at most so many steps that can be differentiated."""

from keras_attn.backend import per_backend
from keras_attn.backend.operations import is_symbolic


def bounded_while(condition, step, state, max_steps, *, reads=(), add_loss):
    """Repeat `state = step(n, state)` for n = 0, 1, ... while `condition(state)` is True.

    Return the last state. The first step is always taken. A TensorFlow graph gets a loop that ends
    early and has a gradient; random numbers, changes of variables and losses are those of the steps
    taken. All `max_steps` are taken where such a loop would have no gradient: in JAX's traces, in
    what XLA compiles for dynamic shapes, and if a step contains `remat`. So a step must not change
    what counts once the condition is False.

    Args:
        condition: function of the state that returns a bool scalar.
        step: function of n, an int or an int32 scalar, and the state. Same shapes out as in.
        state: nested tensors. reads: nested tensors that the steps read beside the state.
        add_loss: function called with the losses that layers add inside a loop of a graph.
    """
    if max_steps > 1:
        last = loop_in_graph(condition, step, state, max_steps, reads, add_loss)
        if last is not None:
            return last
    state = step(0, state)
    for number in range(1, max_steps):
        is_running = condition(state)
        if not is_symbolic(is_running) and not is_running:
            break
        state = step(number, state)
    return state


@per_backend
def loop_in_graph(condition, step, state, max_steps, reads, add_loss):
    """Compute `bounded_while` by a loop of the graph; return None if it would have no gradient."""
    return None
