"""Pairs of sentences as token ids, each to be known again."""

import numpy as np


def sentence_pairs(number=500, longest=29, seed=0):
    """Pairs of unequal lengths, and in each sentence a first token that tells it from others."""
    random = np.random.default_rng(seed)

    def side():
        for index in range(number):
            rest = random.integers(4, 100, random.integers(0, longest))
            yield np.concatenate([[1000 + index], rest]).astype("int32")

    return list(side()), list(side())
