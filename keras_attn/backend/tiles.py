"""Computation tile by tile, so that the scores of few tiles exist at the same time."""

from keras import ops

from keras_attn.backend import per_backend


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
