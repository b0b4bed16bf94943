"""Tiles on PyTorch: a loop whose steps are computed again in the backward pass."""

import torch
from torch.utils.checkpoint import checkpoint


def loop_over_tiles(compute, tiles, shared, dtypes, keys, visible, at_once):
    size = len(tiles[0]) // len(visible)

    def run(n, *tile):
        seen = [key[:, :, : visible[n // size]] for key in keys]
        # Random numbers come from seeds among the tensors, so there is no state to restore.
        return checkpoint(
            compute, *tile, *seen, *shared, use_reentrant=False, preserve_rng_state=False
        )

    results = [run(n, *tile) for n, tile in enumerate(zip(*tiles, strict=True))]
    return tuple(torch.stack(parts) for parts in zip(*results, strict=True))
