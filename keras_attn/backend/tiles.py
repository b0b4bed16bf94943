"""One tile after another, so that the scores of one tile at a time exist."""

from keras import backend


def for_each_tile(compute, tiles, shared, dtypes, keys=(), visible=(None,), at_once=1):
    """What `compute(*tile, *keys, *shared)` gives for each tile, stacked.

    The backward pass computes each tile again instead of keeping what it computed, so memory holds
    `at_once` tiles and what goes in and comes out.

    Args:
        compute: function of tensors that returns a tuple of tensors. What it is to be
            differentiated by comes as arguments, and it draws random numbers only from a seed
            among them.
        tiles: tensors (tiles, ...), of which each tile gets its own part.
        shared: tensors that every tile gets whole.
        dtypes: of the results.
        keys: tensors (B, N, S, .), of which a tile gets what it may see.
        visible: ints. How many of S the tiles see: as many numbers as there are groups of equally
            many tiles, growing; None for all.
        at_once: int. How many tiles TensorFlow may be at, in a graph: while one copies, on one
            core, the next computes.

    Returns:
        A tuple of tensors (tiles, ...).
    """
    if tiles[0].shape[0] == 1:
        return tuple(x[None] for x in compute(*(x[0] for x in tiles), *keys, *shared))
    if backend.backend() == "tensorflow":
        from keras_attn.backend.tensorflow.tiles import for_each_tile
    elif backend.backend() == "jax":
        from keras_attn.backend.jax.tiles import for_each_tile
    else:
        from keras_attn.backend.torch.tiles import for_each_tile
    return for_each_tile(compute, tiles, shared, dtypes, keys, visible, at_once)
