"""What attention is computed from."""

import dataclasses
from collections.abc import Callable

from keras import ops

from keras_attn.attention.positions import PositionRange, head_positions


@dataclasses.dataclass(frozen=True)
class AttentionInputs:
    """Per-head queries, keys and values, where they stand, and who may not be seen.

    A plan cuts them into tiles, folds or sorts them, and attends to each tile on its own.

    Args:
        query: (B, N, T, H). key: (B, N, S, H). value: (B, N, S, Hv).
        query_positions, key_positions: `PositionRange`s, or int32 (B or 1, N or 1, T or S).
        score: of the score axis.
        real: bool (B or 1, N or 1, S), False for padding; None if all keys are real.
        condition: function of query positions (..., T, 1) and key positions (..., 1, S) that tells
            which pairs remain; None if all do.
        drop: function of weights and a seed (dropout); None for none.
        seed: int32 (2,), of `drop`.
        inputs: (B, T, D), what the layer made the queries from; None where no layer did.
        again: bool. Whether the same has been computed before in this call, so that a pattern has
            already added its losses.
    """

    query: object
    key: object
    value: object
    query_positions: object
    key_positions: object
    score: Callable
    real: object = None
    condition: Callable | None = None
    drop: Callable | None = None
    seed: object = None
    inputs: object = None
    again: bool = False

    def replace(self, **changes):
        return dataclasses.replace(self, **changes)

    def restricted(self, condition):
        """The same with one more condition on the positions."""
        old = self.condition
        if old is not None:
            return self.replace(condition=lambda i, j: ops.logical_and(old(i, j), condition(i, j)))
        return self.replace(condition=condition)

    def key_places(self):
        """Positions (B or 1, N or 1, S, 1) of the keys, and which of them are real, as keys lie."""
        positions = head_positions(self.key_positions)[..., None]
        if self.real is None:
            return positions, ops.ones_like(positions, dtype="bool")
        return positions, self.real[..., None]

    def drop_by(self, seed):
        """`drop` as a function of the weights alone, or None."""
        return None if self.drop is None else lambda weights: self.drop(weights, seed)

    def part(self, number):
        """The same, with other random numbers: for one of several parts."""
        if self.seed is None:
            return self
        return self.replace(seed=ops.cast(self.seed, "int32") + number * 15485863)

    def heads(self, indices):
        """Those heads only."""
        lowest, beyond = min(indices), max(indices) + 1
        consecutive = list(indices) == list(range(lowest, beyond))

        def choose(x):
            if x is None or isinstance(x, PositionRange) or x.shape[1] == 1:
                return x
            return x[:, lowest:beyond] if consecutive else ops.take(x, indices, axis=1)

        names = ("query", "key", "value", "query_positions", "key_positions", "real")
        return self.replace(**{name: choose(getattr(self, name)) for name in names})
