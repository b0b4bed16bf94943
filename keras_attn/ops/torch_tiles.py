"""`for_each_tile` on PyTorch: a loop whose steps are computed again in the backward pass."""


def for_each_tile(compute, tiles, shared, dtypes):
    import torch
    from torch.utils.checkpoint import checkpoint

    def run(*tile):
        # Random numbers come from seeds among the tensors, so there is no state to restore.
        return checkpoint(compute, *tile, *shared, use_reentrant=False, preserve_rng_state=False)

    results = [run(*tile) for tile in zip(*tiles, strict=True)]
    return tuple(torch.stack(parts) for parts in zip(*results, strict=True))
