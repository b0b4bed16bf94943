"""Random sentences, the same for every contender."""

import numpy as np

FIRST_WORD = 4  # 0 to 3 are pad, unk, bos and eos.


def sentences(batch, length, vocabulary_size, seed=0):
    """(batch, length) int32 ids of ordinary words: no padding, no end of sentence."""
    generator = np.random.default_rng(seed)
    return generator.integers(FIRST_WORD, vocabulary_size, (batch, length), dtype="int32")


def translation_batch(batch, length, vocabulary_size):
    """Source ids, target ids and labels of one training batch, each (batch, length)."""
    source = sentences(batch, length, vocabulary_size, seed=1)
    target = sentences(batch, length + 1, vocabulary_size, seed=2)
    return source, target[:, :-1], target[:, 1:]
