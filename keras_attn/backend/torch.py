"""Implementations of `keras_attn.backend` on PyTorch."""

import functools

from torch.utils.checkpoint import checkpoint


def loop_over_tiles(compute, *arguments):
    # The backward pass computes each tile again. Random numbers come from seeds among the tensors,
    # so there is no state to restore.
    options = {"use_reentrant": False, "preserve_rng_state": False}
    return loop_over_tiles.portable(functools.partial(checkpoint, compute, **options), *arguments)
