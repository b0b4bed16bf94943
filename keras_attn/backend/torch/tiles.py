"""Tiles on PyTorch: a loop whose steps are computed again in the backward pass."""

import functools

from torch.utils.checkpoint import checkpoint


def loop_over_tiles(compute, *arguments):
    # Random numbers come from seeds among the tensors, so there is no state to restore.
    options = {"use_reentrant": False, "preserve_rng_state": False}
    return loop_over_tiles.portable(functools.partial(checkpoint, compute, **options), *arguments)
