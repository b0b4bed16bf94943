"""Segments of a text in which some tokens are masked."""

import numpy as np

from keras_attn.text.batches.datasets import RowBatches, Rows

# Shares of the chosen tokens that become the mask, and that become a random token.
MASKED, REPLACED = 0.8, 0.1
_DRAWS = 3  # random numbers of a token
_BLOCK = 2**20


def mask_tokens(ids, rate, mask_id, first_id, generator):
    """Apply BERT's masking.

    Each real token is a target with probability `rate`, at least one of them in each row. Of the
    targets, 8 in 10 are read as the mask, 1 as a random token and 1 as itself, so that the model
    cannot know which tokens are targets.

    Args:
        ids: int array (..., T); 0 is padding.
        rate: float.
        mask_id: int. Id of the mask, one after the last token's.
        first_id: int. The first id of ordinary tokens.
        generator: `numpy.random.Generator`, which draws three numbers for each token, row by row.

    Returns:
        Two int32 arrays like `ids`: tokens, and targets, which are 0 elsewhere.

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), sections 3.1 and A.1.
    """
    *rows, width = ids.shape
    chance, fate, drawn = np.moveaxis(generator.random((*rows, _DRAWS, width)), -2, 0)
    real = ids >= first_id
    is_first = real & (np.cumsum(real, axis=-1) == 1)
    chosen = real & (chance < rate)
    chosen |= is_first & ~chosen.any(axis=-1, keepdims=True)
    drawn = first_id + (drawn * (mask_id - first_id)).astype(int)
    read = np.where(fate < MASKED, mask_id, np.where(fate < MASKED + REPLACED, drawn, ids))
    return np.where(chosen, read, ids).astype("int32"), np.where(chosen, ids, 0).astype("int32")


def count_ids(ids):
    """Return how often each id occurs in `TokenFiles`."""
    counts = np.zeros(0, np.int64)
    for start in range(0, len(ids), _BLOCK):
        larger = np.bincount(ids[start : start + _BLOCK], minlength=len(counts))
        larger[: len(counts)] += counts
        counts = larger
    return counts


class MaskedSegments(RowBatches):
    """Batches of segments with masked tokens.

    Segments and random numbers of a row depend on its place and that of its batch alone, so a
    resumed run reads the same batches, and each process makes its rows only. Rows that the text
    does not fill end in padding.

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

    def batch(self, epoch, index, rows=Rows()):
        """Return a dict of tokens, and targets; `rows` selects the rows of one process."""
        in_order = self._steps is None
        step = index if in_order else epoch * self._steps + index
        generator = np.random.default_rng([self._seed, step, in_order])
        if in_order:
            starts = (step * self._batch_size + np.arange(self._batch_size)) * self._context
        else:
            last = max(len(self._ids) - self._context, 0)
            starts = generator.integers(0, last + 1, self._batch_size)
        here = rows.of(self._batch_size)
        ids = np.zeros((len(here), self._context), "int32")
        for row, start in zip(ids, starts[here.start : here.stop], strict=False):
            part = self._ids[start : start + self._context]
            row[: len(part)] = part
        generator.bit_generator.advance(here.start * self._context * _DRAWS)
        tokens, targets = mask_tokens(ids, generator=generator, **self._masking)
        return {"token_ids": tokens}, targets
