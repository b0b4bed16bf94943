"""What a strategy is asked to write."""

from typing import NamedTuple


class Task(NamedTuple):
    """The arguments of `generate` that every strategy gets.

    Attributes:
        max_length: most tokens to write.
        bos_id, eos_id: the tokens that start and end a sequence.
        grows: whether the caches grow with each step. Where shapes may change (a TensorFlow graph
            outside XLA) this is faster: nothing is masked, and a step attends to what is there.
    """

    max_length: int
    bos_id: int
    eos_id: int
    grows: bool
