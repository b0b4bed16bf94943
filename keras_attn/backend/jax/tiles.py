"""Tiles on JAX: a loop whose steps are computed again in the backward pass."""

import jax


def loop_over_tiles(compute, tiles, shared, dtypes, keys, visible, at_once):
    # Inside a loop nothing can be merged with what is computed again, so nothing needs a barrier.
    compute = jax.checkpoint(compute, prevent_cse=False)
    size = len(tiles[0]) // len(visible)
    groups = []
    for n, length in enumerate(visible):
        seen = [key[:, :, :length] for key in keys]
        group = tuple(x[n * size : (n + 1) * size] for x in tiles)
        groups.append(jax.lax.map(lambda tile: compute(*tile, *seen, *shared), group))
    return tuple(jax.numpy.concatenate(parts) for parts in zip(*groups, strict=True))
