"""The arguments of every way to compute attention, and their positions."""

import dataclasses
import functools
from collections.abc import Callable

from keras import ops

from keras_attn.backend.loop_invariants import loop_invariant
from keras_attn.ops.checks import check_positions
from keras_attn.ops.shapes import size, slice_axis


@dataclasses.dataclass(frozen=True)
class PositionRange:
    """The positions start, start + step, ... in their order.

    While a graph is built, a tensor of positions cannot show that their distances are regular.
    `start` and `length` may be tensors.
    """

    start: object
    length: object
    step: int = 1

    @property
    def shape(self):
        return (self.length if isinstance(self.length, int) else None,)

    @property
    def last(self):
        return self.start + (self.length - 1) * self.step

    def tensor(self):
        """Return the positions as an int32 tensor (length,)."""
        return ops.arange(self.length, dtype="int32") * self.step + self.start


def default_positions(length, num_keys):
    """Return the `PositionRange`s of T queries, which are the last of S keys, and of the keys."""
    return PositionRange(num_keys - length, length), PositionRange(0, num_keys)


def fill_positions(query, key, query_positions=None, key_positions=None):
    """Return the positions of queries (B, N, T, H) and keys; the default ones for None."""
    queries, keys = default_positions(size(query, 2), size(key, 2))
    return (
        queries if query_positions is None else query_positions,
        keys if key_positions is None else key_positions,
    )


def positions_tensor(positions):
    """Return an int32 tensor of a `PositionRange` or of anything that converts to a tensor."""
    if isinstance(positions, PositionRange):
        return positions.tensor()
    return ops.cast(positions, "int32")


def positions_by_head(positions):
    """Return any positions (T,), (B, T) or (B or 1, N or 1, T) as int32 of the last shape."""
    positions = positions_tensor(positions)
    rank = len(positions.shape)
    return positions[None, None] if rank == 1 else positions[:, None] if rank == 2 else positions


def first_positions(positions, length):
    """Return the first `length` of a `PositionRange` or of a tensor (B, N, S); None stays None."""
    if isinstance(positions, PositionRange):
        return dataclasses.replace(positions, length=length)
    return None if positions is None else slice_axis(positions, 0, length, axis=2)


def distances_between(query_positions, key_positions):
    """Return all differences of two `PositionRange`s as one; None for other positions."""
    both = query_positions, key_positions
    if not all(isinstance(x, PositionRange) for x in both) or len({x.step for x in both}) > 1:
        return None
    length = query_positions.length + key_positions.length - 1
    return PositionRange(query_positions.start - key_positions.last, length, key_positions.step)


def combine_masks(*masks):
    """Return the logical and of those masks that are not None; None if there is none."""
    present = [mask for mask in masks if mask is not None]
    return functools.reduce(ops.logical_and, present) if present else None


@dataclasses.dataclass(frozen=True)
class ResolvedPositions:
    """Positions of one call: `PositionRange`s, or the tensors (T,) or (B, T) of the caller."""

    query: object
    new_key: object  # of the keys that the cache does not hold yet; None if none are read
    key: object  # of all keys if the caller gave `key_positions`, else None


NO_POSITIONS = ResolvedPositions(None, None, None)  # where nothing reads them


def num_cached(cache):
    """Return how many keys a cache holds, an int or a scalar; 0 without a cache."""
    if cache is None:
        return 0
    return size(cache["key"], 2) if cache.get("index") is None else cache["index"]


def resolve_positions(
    query, key, cache=None, query_positions=None, key_positions=None, reads_new=True
):
    """Return the `ResolvedPositions` of queries and keys.

    Without positions from the caller, new keys follow those in the cache, and queries are the last.

    Args:
        query: (B, N, T, H). key: (B, N, S, H), the new keys; None if there are none.
        cache: dict of the attention layer, or None.
        query_positions, key_positions: from the caller; with a cache, the latter of all its slots.
        reads_new: bool. If False, positions of new keys are not picked out of `key_positions`.
    """
    batch, _, steps, _ = query.shape
    is_complete = cache is not None and "index" not in cache
    cached, num_new = num_cached(cache), 0 if is_complete else size(key, 2)
    if query_positions is None:
        length = size(query, 2)
        ahead = num_new - length
        is_aligned = isinstance(ahead, int) and ahead == 0  # spares an operation of each step
        start = cached if is_aligned else ahead if cache is None else cached + ahead
        queries = PositionRange(start, length)
    else:
        queries = check_positions(query_positions, "query_positions", batch, steps)
    keys = None
    if key_positions is not None:
        grows = cache is not None and cache.get("index", 0) is None
        num_keys = None if grows else (key if cache is None else cache["key"]).shape[2]
        keys = check_positions(key_positions, "key_positions", batch, num_keys)
    if is_complete:
        new = None
    elif keys is None and cache is not None and "sums" in cache and query_positions is not None:
        new = queries  # the new keys are those of the queries
    elif keys is None:
        new = queries if query_positions is None and is_aligned else PositionRange(cached, num_new)
    elif cache is None:
        new = keys
    else:
        new = (
            ops.take(keys, PositionRange(cached, num_new).tensor(), axis=-1) if reads_new else None
        )
    return ResolvedPositions(queries, new, keys)


@dataclasses.dataclass(frozen=True)
class TileSizes:
    """Sizes by which blockwise attention cuts scores into tiles."""

    # Scores of one tile that has all keys (32 MiB): wide rows for the product, little memory.
    chunk_scores: int = 2**23
    # Scores of one tile of blocks: few for a processor's cache, enough to outweigh the loop.
    block_scores: int = 2**20
    # Groups of queries where later queries see more keys; of the pairs that no query sees, half a
    # group's share is computed: 1/16.
    num_groups: int = 8
    least_group: int = 128  # fewest queries of a group
    # Longest block of a window: short blocks compute few keys beyond it, long ones multiply faster.
    most_block: int = 128
    least_window: int = 64  # of an adaptive span: smaller products are hardly faster
    # Queries and keys of a chunk of linear attention.
    linear_chunk: int = 128


@dataclasses.dataclass(frozen=True)
class AttentionInputs:
    """Per-head queries, keys and values with their positions and masks.

    A plan cuts them into tiles, folds or sorts them, and attends to each tile separately. Positions
    are `PositionRange`s or int32 (B or 1, N or 1, T or S); in dense attention also (T,) and (B, T).
    `attention_mask` and `slot_mask` are only for dense attention.

    In packed rows, the number of a document is its first position in the row plus 1:
    `query_segments` has that of each query, -1 for padding, and `key_mask` that of each key, 0 for
    padding. Plans get positions in the row, dense attention those in the documents.
    """

    query: object  # (B, N, T, H)
    key: object  # (B, N, S, H)
    value: object  # (B, N, S, Hv)
    query_positions: object
    key_positions: object
    score: Callable  # of the score axis
    # bool (B or 1, N or 1, S), False for padding; None if all are real; in packed rows int32
    key_mask: object = None
    query_segments: tuple = ()  # in packed rows one int32 (B or 1, N or 1, T, 1)
    # Function of positions (..., T, 1) and (..., 1, S), True for pairs that remain; None for all.
    mask_fn: Callable | None = None
    dropout_fn: Callable | None = None  # function of weights and a seed
    seed: object = None  # int32 (2,), for `dropout_fn` and patterns that draw random numbers
    layer_input: object = None  # (B, T, D), which the layer projected to queries, if there is one
    # True if the call has computed this attention before, so a pattern has added its losses.
    is_recompute: bool = False
    position: object = None  # of heads, which the layer has applied; None if there is none
    attention_mask: object = None  # bool, four axes that broadcast to (B, N, T, S)
    slot_mask: object = None  # bool (S,), the slots of a cache that hold a key
    sums: object = None  # (B, N, M, Hv + 1), of a cache that keeps sums in place of earlier keys
    memory: dict | None = None  # of keys and values of earlier segments, in a `KNNAttention`
    # Queries, keys and values by the second projections of a `GlobalAttention`.
    first_heads: tuple | None = None
    sinks: object = None  # (N,), logits beside those of the keys; None for none
    tile_sizes: TileSizes = TileSizes()

    def replace(self, **changes):
        return dataclasses.replace(self, **changes)

    def restricted(self, mask_fn):
        """Return the same inputs with one more condition on the positions."""
        old = self.mask_fn
        if old is None:
            return self.replace(mask_fn=mask_fn)
        return self.replace(mask_fn=lambda i, j: ops.logical_and(old(i, j), mask_fn(i, j)))

    def in_row(self):
        """Return the same with positions in the row, not in documents."""
        queries, keys = default_positions(size(self.query, 2), size(self.key, 2))
        return self.replace(query_positions=queries, key_positions=keys)

    def positions_of_keys(self):
        """Return the positions (B or 1, N or 1, S, 1) of the keys."""
        return positions_by_head(self.key_positions)[..., None]

    def real_keys(self):
        """Return a bool (B or 1, N or 1, S), False for padding; None if all keys are real."""
        return self.key_mask > 0 if self.query_segments else self.key_mask

    def mask_of_keys(self):
        """Return `key_mask` as (B or 1, N or 1, S, 1), of its dtype; all True if it is None."""
        if self.key_mask is None:
            return ops.ones((1, 1, size(self.key, 2), 1), dtype="bool")
        return self.key_mask[..., None]

    def dense_mask(self, mask=None):
        """Return `mask` (or None) and every mask of the inputs, over the whole matrix of scores."""
        slots = None if self.slot_mask is None else self.slot_mask[None, None, None]
        keys = None
        if self.key_mask is not None:
            keys = loop_invariant(self.key_mask, "pairs", lambda: self.key_mask[:, :, None])
        if self.query_segments:
            keys = ops.equal(*self.query_segments, keys)
        return combine_masks(mask, slots, keys, self.attention_mask)

    def dropout(self, seed):
        """Return the dropout by a seed as a function of the weights; None without dropout."""
        return self.dropout_fn and (lambda weights: self.dropout_fn(weights, seed))

    def fold_in(self, number):
        """Return the same inputs with other random numbers, for one of several parts."""
        if self.seed is None:
            return self
        # The product tells parts of parts apart: sums of numbers could be equal.
        return self.replace(seed=ops.cast(self.seed, "int32") * 1664525 + number * 15485863)

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
