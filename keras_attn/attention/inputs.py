"""The arguments of every way to compute attention, and their positions."""

import dataclasses
from collections.abc import Callable

from keras import ops

from keras_attn.ops.checks import check_positions
from keras_attn.ops.shapes import size, slice_axis


@dataclasses.dataclass(frozen=True)
class PositionRange:
    """The positions start, start + step, ... in their order.

    Scores and plans use the regular distances, which a tensor of positions cannot show while a
    graph is built. `start` and `length` may be tensors.
    """

    start: object
    length: object
    step: int = 1

    @property
    def shape(self):
        return (self.length if isinstance(self.length, int) else None,)

    def tensor(self):
        """Return the positions as an int32 tensor (length,)."""
        return ops.arange(self.length, dtype="int32") * self.step + self.start


def default_positions(length, num_keys):
    """Return the `PositionRange`s of T queries, which are the last of S keys, and of the keys."""
    return PositionRange(num_keys - length, length), PositionRange(0, num_keys)


def positions_tensor(positions):
    """Return an int32 tensor of a `PositionRange` or of anything that converts to a tensor."""
    if isinstance(positions, PositionRange):
        return positions.tensor()
    return ops.cast(positions, "int32")


def positions_by_head(positions):
    """Return positions (T,), (B, T) or (B or 1, N or 1, T) of any kind as int32 of the last shape."""
    positions = positions_tensor(positions)
    rank = len(positions.shape)
    return positions[None, None] if rank == 1 else positions[:, None] if rank == 2 else positions


def first_positions(positions, length):
    """Return the first `length` of a `PositionRange` or of a tensor (B, N, S); None stays None."""
    if isinstance(positions, PositionRange):
        return dataclasses.replace(positions, length=length)
    if positions is None:
        return None
    return slice_axis(positions, 0, length, axis=len(positions.shape) - 1)


@dataclasses.dataclass(frozen=True)
class ResolvedPositions:
    """Positions of one call: given by the caller or following the keys of the cache.

    Args:
        query: `PositionRange`, or the tensor (T,) or (B, T) given by the caller.
        new_key: the same for keys that the cache does not hold yet; None if there are none.
        key: tensor (S,) or (B, S) of all keys if the caller gave `key_positions`, else None.
    """

    query: object
    new_key: object
    key: object = None


def resolve_positions(query, key, cache=None, query_positions=None, key_positions=None):
    """Resolve the positions of queries and keys.

    Without positions from the caller, new keys follow those in the cache, and the queries are at
    the last positions.

    Args:
        query: (B, N, T, H). key: (B, N, S, H), the new keys; None if there are none.
        cache: dict of the attention layer, or None.
        query_positions, key_positions: as the attention layer gets them; with a cache,
            `key_positions` are those of all slots.

    Returns:
        `ResolvedPositions`.
    """
    batch, _, steps, _ = query.shape
    is_complete = cache is not None and "index" not in cache
    grows = cache is not None and cache.get("index") is None
    cached = 0 if cache is None else size(cache["key"], 2) if grows else cache["index"]
    num_new = 0 if is_complete else size(key, 2)
    if query_positions is None:
        length = size(query, 2)
        ahead = num_new - length
        is_aligned = isinstance(ahead, int) and ahead == 0  # spares an operation of each step
        queries = PositionRange(
            ahead if cache is None else cached if is_aligned else cached + ahead, length
        )
    else:
        queries = check_positions(query_positions, "query_positions", batch, steps)
    if key_positions is None:
        if is_complete:
            return ResolvedPositions(queries, None)
        is_same = query_positions is None and is_aligned
        return ResolvedPositions(queries, queries if is_same else PositionRange(cached, num_new))
    num_keys = None
    if cache is None:
        num_keys = key.shape[2]
    elif is_complete or not grows:
        num_keys = cache["key"].shape[2]
    keys = check_positions(key_positions, "key_positions", batch, num_keys)
    if is_complete:
        return ResolvedPositions(queries, None, keys)
    new = keys
    if cache is not None:
        new = ops.take(keys, PositionRange(cached, num_new).tensor(), axis=-1)
    return ResolvedPositions(queries, new, keys)


@dataclasses.dataclass(frozen=True)
class TileSizes:
    """Sizes by which blockwise attention cuts scores into tiles.

    Args:
        chunk_scores: scores of one tile that has all keys (32 MiB in float32): wide rows for the
            matrix product, little memory.
        block_scores: scores of one tile of blocks: few enough for a processor's cache, enough to
            outweigh the loop around the tiles.
        num_groups: groups of queries where later queries see more keys; of the pairs that no
            query sees, half a group's share is computed: 1/16.
        least_group: fewest queries of a group.
        most_block: longest block of a window: short blocks compute few keys beyond the window, long
            ones make better matrix products.
        least_window: shortest window of an adaptive span: smaller products are hardly faster.
    """

    chunk_scores: int = 2**23
    block_scores: int = 2**20
    num_groups: int = 8
    least_group: int = 128
    most_block: int = 128
    least_window: int = 64


@dataclasses.dataclass(frozen=True)
class AttentionInputs:
    """Per-head queries, keys and values with their positions and masks.

    A plan cuts them into tiles, folds or sorts them, and attends to each tile separately.

    Args:
        query: (B, N, T, H). key: (B, N, S, H). value: (B, N, S, Hv).
        query_positions, key_positions: `PositionRange`s, or int32 (B or 1, N or 1, T or S); in
            dense attention also (T,) and (B, T).
        score: of the score axis.
        key_mask: bool (B or 1, N or 1, S), False for padding; None if all keys are real.
        mask_fn: function of query positions (..., T, 1) and key positions (..., 1, S) that returns
            which pairs remain; None if all do.
        dropout_fn: function of weights and a seed; None without dropout.
        seed: int32 (2,), for `dropout_fn` and patterns that draw random numbers.
        layer_input: (B, T, D), the tensor that the layer projected to queries; None outside layers.
        is_recompute: bool. True if the same attention has been computed before in this call, so
            that a pattern has already added its losses.
        attention_mask: bool, four axes that broadcast to (B, N, T, S); only for dense attention.
        slot_mask: bool (S,), the slots of a cache that hold a key; only for dense attention.
        tile_sizes: `TileSizes`.
    """

    query: object
    key: object
    value: object
    query_positions: object
    key_positions: object
    score: Callable
    key_mask: object = None
    mask_fn: Callable | None = None
    dropout_fn: Callable | None = None
    seed: object = None
    layer_input: object = None
    is_recompute: bool = False
    attention_mask: object = None
    slot_mask: object = None
    tile_sizes: TileSizes = TileSizes()

    def replace(self, **changes):
        return dataclasses.replace(self, **changes)

    def restricted(self, mask_fn):
        """Return the same inputs with one more condition on the positions."""
        old = self.mask_fn
        if old is not None:
            return self.replace(mask_fn=lambda i, j: ops.logical_and(old(i, j), mask_fn(i, j)))
        return self.replace(mask_fn=mask_fn)

    def positions_of_keys(self):
        """Return the positions (B or 1, N or 1, S, 1) of the keys."""
        return positions_by_head(self.key_positions)[..., None]

    def mask_of_keys(self):
        """Return `key_mask` as (B or 1, N or 1, S, 1), all True if there is none."""
        if self.key_mask is None:
            return ops.ones((1, 1, size(self.key, 2), 1), dtype="bool")
        return self.key_mask[..., None]

    def dense_mask(self, mask=None):
        """Return `mask` (or None) and every mask of the inputs, over the whole matrix of scores."""
        for other in (
            None if self.slot_mask is None else self.slot_mask[None, None, None],
            None if self.key_mask is None else self.key_mask[:, :, None],
            self.attention_mask,
        ):
            if other is not None:
                mask = other if mask is None else ops.logical_and(mask, other)
        return mask

    def drop(self, weights, seed):
        """Return the weights after dropout."""
        return weights if self.dropout_fn is None else self.dropout_fn(weights, seed)

    def fold_in(self, number):
        """Return the same inputs with other random numbers, for one of several parts."""
        if self.seed is None:
            return self
        return self.replace(seed=ops.cast(self.seed, "int32") + number * 15485863)

    def heads(self, indices):
        """Return the inputs of some heads only."""
        lowest, beyond = min(indices), max(indices) + 1
        are_consecutive = list(indices) == list(range(lowest, beyond))

        def choose(x):
            if x is None or isinstance(x, PositionRange) or x.shape[1] == 1:
                return x
            return x[:, lowest:beyond] if are_consecutive else ops.take(x, indices, axis=1)

        names = ("query", "key", "value", "query_positions", "key_positions", "key_mask")
        return self.replace(**{name: choose(getattr(self, name)) for name in names})
