"""Segments of a text in which some tokens are masked."""

import numpy as np

# Shares of the chosen tokens that become the mask, and that become a random token.
MASKED, REPLACED = 0.8, 0.1
_BLOCK = 2**20


def mask_tokens(ids, rate, mask_id, first_id, generator):
    """Apply BERT's masking.

    Each real token is a target with probability `rate`, at least one of them in all. Of the
    targets, 8 in 10 are read as the mask, 1 as a random token and 1 as itself, so that the model
    cannot know which tokens are targets.

    Args:
        ids: int array; 0 is padding.
        rate: float.
        mask_id: int. Id of the mask, one after the last token's.
        first_id: int. The first id of ordinary tokens.
        generator: `numpy.random.Generator`.

    Returns:
        Two int32 arrays like `ids`: tokens, and targets, which are 0 elsewhere.

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), sections 3.1 and A.1.
    """
    real = ids >= first_id
    chosen = real & (generator.random(ids.shape) < rate)
    if not chosen.any() and real.any():
        chosen.flat[np.flatnonzero(real)[0]] = True
    fate = generator.random(ids.shape)
    drawn = generator.integers(first_id, mask_id, ids.shape)
    read = np.where(fate < MASKED, mask_id, np.where(fate < MASKED + REPLACED, drawn, ids))
    return np.where(chosen, read, ids).astype("int32"), np.where(chosen, ids, 0).astype("int32")


def count_ids(ids):
    """Return how often each id occurs in `TokenFiles`."""
    counts = np.zeros(0, np.int64)
    for start in range(0, len(ids), _BLOCK):
        found = np.bincount(ids[start : start + _BLOCK], minlength=len(counts))
        found[: len(counts)] += counts
        counts = found
    return counts


class MaskedSegments:
    """Batches of segments with masked tokens.

    Segments and random numbers of a batch depend on its index alone, so a resumed run reads the
    same batches. Rows that the text does not fill end in padding.

    Args:
        ids: `TokenFiles` or int array, the text.
        options: with `context`, `batch_size`, `mask_rate` and `seed`.
        mask_id, first_id: as `mask_tokens`.
        steps: int. Batches of an epoch; None for all segments, in their order, once. Otherwise each
            row of a batch is a segment drawn from anywhere in the text.
    """

    def __init__(self, ids, options, mask_id, first_id, steps=None):
        self._ids, self._context, self._batch_size = ids, options.context, options.batch_size
        self._seed, self._steps = options.seed, steps
        self._masking = {"rate": options.mask_rate, "mask_id": mask_id, "first_id": first_id}

    def __len__(self):
        if self._steps is not None:
            return self._steps
        return -(-len(self._ids) // (self._context * self._batch_size))

    def batch(self, epoch, index):
        """Return a dict of tokens, and targets."""
        in_order = self._steps is None
        step = index if in_order else epoch * self._steps + index
        generator = np.random.default_rng([self._seed, step, in_order])
        if in_order:
            starts = (step * self._batch_size + np.arange(self._batch_size)) * self._context
        else:
            last = max(len(self._ids) - self._context, 0)
            starts = generator.integers(0, last + 1, self._batch_size)
        rows = np.zeros((self._batch_size, self._context), "int32")
        for row, start in zip(rows, starts, strict=True):
            part = self._ids[start : start + self._context]
            row[: len(part)] = part
        tokens, targets = mask_tokens(rows, generator=generator, **self._masking)
        return {"token_ids": tokens}, targets
