"""Loops with gradients: of at most so many steps, and over tiles."""

from keras import ops

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


def for_each_tile(compute, tiles, shared, dtypes, keys=(), visible=(None,), at_once=1):
    """Return the stacked results (tiles, ...) of `compute(*tile, *keys, *shared)` for each tile.

    The backward pass computes each tile again instead of keeping its results, so memory holds
    `at_once` tiles and the inputs and outputs.

    Args:
        compute: function of tensors that returns a tuple of tensors. Tensors by which it is
            differentiated are arguments, and random numbers come only from a seed among them.
        tiles: tensors (tiles, ...), of which each tile gets its own part.
        shared: tensors that every tile gets whole. dtypes: of the results.
        keys: tensors (B, N, S, .), of which a tile gets its visible part.
        visible: ints, how many of S the tiles see: one number, growing, for each of several groups
            of equally many tiles; None for all of S.
        at_once: int. Tiles at which a TensorFlow graph works: while one copies, another computes.
    """
    if tiles[0].shape[0] == 1:
        return tuple(x[None] for x in compute(*(x[0] for x in tiles), *keys, *shared))
    return loop_over_tiles(compute, tiles, shared, dtypes, keys, visible, at_once)


@per_backend
def loop_over_tiles(compute, tiles, shared, dtypes, keys, visible, at_once):
    """Compute `for_each_tile` for more than one tile."""
    size = len(tiles[0]) // len(visible)
    results = []
    for n, tile in enumerate(zip(*tiles, strict=True)):
        seen = [key[:, :, : visible[n // size]] for key in keys]
        results.append(compute(*tile, *seen, *shared))
    return tuple(ops.stack(parts) for parts in zip(*results, strict=True))
