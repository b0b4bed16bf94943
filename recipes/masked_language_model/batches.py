"""Segments of a text in which some tokens are hidden."""

import numpy as np

# Of the tokens to guess: those that the mask stands for, and those that another token does.
MASKED, REPLACED = 0.8, 0.1


def hide(ids, rate, mask_id, first_id, generator):
    """BERT's masking: what the model reads, and what it is to guess.

    Each real token is to be guessed with probability `rate`, at least one of them in all. Of those,
    8 of 10 are read as the mask, 1 as a token drawn from all, 1 as itself, so that the model cannot
    know which tokens are to be guessed.

    Args:
        ids: int array; 0 is padding.
        rate: float.
        mask_id: int. The mask's id, one after the last token's.
        first_id: int. The first id that stands for text.
        generator: `numpy.random.Generator`.

    Returns:
        Two int32 arrays like `ids`: tokens, and targets, which are 0 where nothing is to be
        guessed.

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3.1 and appendix A.1.
    """
    real = ids >= first_id
    chosen = real & (generator.random(ids.shape) < rate)
    if not chosen.any() and real.any():
        chosen.flat[np.flatnonzero(real)[0]] = True
    fate = generator.random(ids.shape)
    drawn = generator.integers(first_id, mask_id, ids.shape)
    read = np.where(fate < MASKED, mask_id, np.where(fate < MASKED + REPLACED, drawn, ids))
    return np.where(chosen, read, ids).astype("int32"), np.where(chosen, ids, 0).astype("int32")


class MaskedSegments:
    """Batches of segments with hidden tokens.

    A batch is made of the segments and of the random numbers that its place tells, whatever was
    asked for before: a run that is resumed goes on as it would have. Rows that the text does not
    fill end in padding.

    Args:
        ids: int array, the text.
        options: with `context`, `batch_size`, `mask_rate` and `seed`.
        mask_id, first_id: as `hide`.
        steps: int. Batches of an epoch; None for all segments, in their order, once. Otherwise each
            row of a batch is a segment drawn from anywhere in the text.
    """

    def __init__(self, ids, options, mask_id, first_id, steps=None):
        self._ids, self._context, self._batch_size = ids, options.context, options.batch_size
        self._seed, self._steps = options.seed, steps
        self._hide = {"rate": options.mask_rate, "mask_id": mask_id, "first_id": first_id}

    def __len__(self):
        if self._steps is not None:
            return self._steps
        return -(-len(self._ids) // (self._context * self._batch_size))

    def batch(self, epoch, index):
        """Tokens by name, and targets."""
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
        tokens, targets = hide(rows, generator=generator, **self._hide)
        return {"token_ids": tokens}, targets
