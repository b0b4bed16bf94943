"""Positions at equal distances."""

import dataclasses

from keras import ops

from keras_attn.ops.cutting import part_of


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


def last_of(length, num_keys):
    """Where queries and keys stand unless told otherwise: the queries are the last of the keys."""
    return Progression(num_keys - length, length), Progression(0, num_keys)


def positions_tensor(positions):
    """An int32 tensor of a `Progression` or of anything that makes a tensor."""
    if isinstance(positions, Progression):
        return positions.tensor()
    return ops.cast(positions, "int32")


def first_of(places, length):
    """The first of a `Progression`, or of a tensor (B, N, S) or None, which stands for all."""
    if isinstance(places, Progression):
        return dataclasses.replace(places, length=length)
    return None if places is None else part_of(places, 0, length, axis=len(places.shape) - 1)


def head_positions(positions):
    """Positions (T,), (B, T) or (B or 1, N or 1, T) of any kind as int32 of the last shape."""
    if isinstance(positions, Progression):
        return positions.tensor()[None, None]
    positions = ops.cast(positions, "int32")
    rank = len(positions.shape)
    return positions[None, None] if rank == 1 else positions[:, None] if rank == 2 else positions
