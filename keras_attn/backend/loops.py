"""Loops with gradients: of at most so many steps, and over tiles."""

import contextlib
import threading

from keras import ops

from keras_attn.backend import per_backend
from keras_attn.backend.operations import is_symbolic


def bounded_while(condition, step, state, max_steps, *, reads=(), add_loss):
    """Repeat `state = step(n, state)` for n = 0, 1, ... while `condition(state)` is True.

    Return the last state. The first step is always taken. A TensorFlow graph gets a loop that ends
    early and has a gradient; random numbers, changes of variables and losses are those of the steps
    taken. Where such a loop would have no gradient, all `max_steps` are taken: in JAX's traces, in
    what XLA compiles for dynamic shapes, and if a step contains `remat`. A step that is taken while
    the condition is False must therefore change nothing that counts.

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


class _TileLoops(threading.local):
    """True where graphs of this thread may have loops over tiles."""

    are_built = True


tile_loops = _TileLoops()


@contextlib.contextmanager
def without_tile_loops():
    """Build graphs without loops over tiles in this scope, for converters that know none.

    Attention computes all tiles at once, and a known number of tiles one after another.
    """
    outer = tile_loops.are_built
    tile_loops.are_built = False
    try:
        yield
    finally:
        tile_loops.are_built = outer


def for_each_tile(compute, tiles, shared, dtypes, keys=(), visible=(None,), at_once=1):
    """Return the stacked results (tiles, ...) of `compute(*tile, *keys, *shared)` for each tile.

    The backward pass computes each tile again. Memory so holds the inputs, the outputs, and what
    `compute` makes for `at_once` tiles.

    Args:
        compute: function of tensors that returns a tuple of tensors. It reads no other tensor that
            has a gradient, and draws random numbers only from a seed among its arguments.
        tiles: tensors (tiles, ...). Each tile gets its own part.
        shared: tensors that every tile gets whole. dtypes: of the results.
        keys: tensors (B, N, S, .). Each tile gets the first of the S that it sees.
        visible: tuple of ints. The tiles are divided into as many groups of one size, in order, and
            a tile of group i sees the first visible[i] of S, or all for None. The numbers grow.
        at_once: int. Tiles that a TensorFlow graph computes at the same time.
    """
    if tiles[0].shape[0] == 1:
        return tuple(ops.expand_dims(x, 0) for x in compute(*(x[0] for x in tiles), *keys, *shared))
    if isinstance(tiles[0].shape[0], int) and not tile_loops.are_built:
        return loop_over_tiles.portable(compute, tiles, shared, dtypes, keys, visible, at_once)
    return loop_over_tiles(compute, tiles, shared, dtypes, keys, visible, at_once)


@per_backend
def loop_over_tiles(compute, tiles, shared, dtypes, keys, visible, at_once):
    """Compute `for_each_tile` for more than one tile."""
    count = tiles[0].shape[0]
    results = []
    for n in range(count):
        seen = [key[:, :, : visible[n * len(visible) // count]] for key in keys]
        tile = [x[n] for x in tiles]
        results.append(compute(*tile, *seen, *shared))
    return tuple(ops.stack(parts) for parts in zip(*results, strict=True))


@per_backend
def attend_causal(query, key, value, key_mask, block, num_doublings, most_scores):
    """Compute causal attention of as many queries as keys, exactly, in squares of scores.

    Memory holds the inputs, the outputs, and a few squares. The backward pass computes weights
    again.

    Args:
        query: (B, N, T, H), scaled. key, value: (B, N, T, .). T is known, the dtype not float16.
        key_mask: bool (B or 1, N or 1, T), False for padding; None if all keys are real.
        block: int. Length of the blocks whose scores are masked.
        num_doublings: int. T is at most `block` times two to this power.
        most_scores: int. Scores of the squares that are computed at once.

    Returns:
        Output (B, N, T, .) and log weight (B, N, T, 1), as `Plan.attend` has them. None where a
        loop over tiles is needed: on other backends than TensorFlow, under XLA, and for no rows.
    """
    return None
