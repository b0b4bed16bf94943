"""Positions at equal distances."""

import dataclasses

from keras import ops


@dataclasses.dataclass(frozen=True)
class Progression:
    """The positions start, start + step, ... in their order; as a tensor, by `tensor`.

    A score or a plan that is given one knows, which a tensor cannot tell while a graph is built,
    that neighbours are neighbours. `start` and `length` may be tensors.
    """

    start: object
    length: object
    step: int = 1

    @property
    def shape(self):
        return (self.length if isinstance(self.length, int) else None,)

    def tensor(self):
        return ops.arange(self.length, dtype="int32") * self.step + self.start


def positions_tensor(positions):
    """An int32 tensor of a `Progression` or of anything that makes a tensor."""
    if isinstance(positions, Progression):
        return positions.tensor()
    return ops.cast(positions, "int32")
