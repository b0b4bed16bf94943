"""Work that contenders share: the call that is timed, model sizes and random sentences."""

import dataclasses
from collections.abc import Callable

import numpy as np

FIRST_WORD = 4  # after pad, unk, bos and eos


@dataclasses.dataclass(frozen=True)
class Task:
    """One call to time.

    Args:
        call: function without arguments that does the work and waits for its result.
        units: float. Work of one call, such as tokens, for rates.
        facts: dict. Further entries of the card, such as parameters.
    """

    call: Callable[[], object]
    units: float = 1.0
    facts: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Shape:
    """Size of an encoder-decoder with as many decoder as encoder layers."""

    preset: str
    num_layers: int
    hidden_dim: int
    num_heads: int
    intermediate_dim: int
    vocabulary_size: int = 8000


SHAPES = {
    "tiny": Shape("transformer_tiny", 4, 128, 4, 256),
    "base": Shape("transformer_base", 6, 512, 8, 2048),
}


def sentences(batch, length, vocabulary_size, seed=0):
    """Return (batch, length) int32 ids of ordinary words: no padding, no end of sentence."""
    generator = np.random.default_rng(seed)
    return generator.integers(FIRST_WORD, vocabulary_size, (batch, length), dtype="int32")


def translation_batch(batch, length, vocabulary_size):
    """Return source ids, target ids and labels of one training batch, each (batch, length)."""
    source = sentences(batch, length, vocabulary_size, seed=1)
    target = sentences(batch, length + 1, vocabulary_size, seed=2)
    return source, target[:, :-1], target[:, 1:]
