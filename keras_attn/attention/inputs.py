"""The arguments of every way to compute attention: heads, positions and masks."""

import dataclasses
import functools
from collections.abc import Callable

from keras import ops

from keras_attn.backend.loop_invariants import loop_invariant, loop_scope
from keras_attn.compat.keras_masks import get_keras_mask, set_keras_mask
from keras_attn.ops.checks import check_mask, check_positions
from keras_attn.ops.shapes import size, slice_axis

keras_mask = get_keras_mask


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
    if rank == 1:
        return ops.expand_dims(positions, (0, 1))
    return ops.expand_dims(positions, 1) if rank == 2 else positions


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
    key: object  # `key_positions` of the caller, of all keys; else None


NO_POSITIONS = ResolvedPositions(None, None, None)  # where nothing reads them


def is_growing(cache):
    """Return True for a cache to which new keys are appended."""
    return cache is not None and cache.get("index", 0) is None


def num_cached(cache):
    """Return how many keys a cache holds, an int or a scalar; 0 without a cache."""
    if cache is None:
        return 0
    return size(cache["key"], 2) if cache.get("index") is None else cache["index"]


def resolve_positions(query, key, cache=None, caller_positions=(None, None), reads_new=True):
    """Return the `ResolvedPositions` of queries and keys.

    Without positions from the caller, new keys follow those in the cache, and queries are the last.

    Args:
        query: (B, N, T, H). key: (B, N, S, H), the new keys; None if there are none.
        cache: dict of the attention layer, or None.
        caller_positions: of queries and of keys, or None; with a cache, the latter of all its
            slots.
        reads_new: bool. If False, positions of new keys are not picked out of `key_positions`.
    """
    query_positions, key_positions = caller_positions
    batch, _, steps, _ = query.shape
    is_extended = cache is None or "index" in cache
    cached, num_new = num_cached(cache), size(key, 2) if is_extended else 0
    if query_positions is None:
        length = size(query, 2)
        surplus = num_new - length  # new keys before the first query
        is_aligned = isinstance(surplus, int) and surplus == 0  # spares an operation of each step
        start = cached if is_aligned else surplus if cache is None else cached + surplus
        queries = PositionRange(start, length)
    else:  # new keys of a cache of sums have the positions of the queries
        queries = check_positions(query_positions, "query_positions", batch, steps)
        is_aligned = cache is not None and "sums" in cache
    new_range = PositionRange(cached, num_new)
    if key_positions is None:
        new = None if not is_extended else queries if is_aligned else new_range
        return ResolvedPositions(queries, new, None)
    num_keys = None if is_growing(cache) else (key if cache is None else cache["key"]).shape[2]
    keys = check_positions(key_positions, "key_positions", batch, num_keys)
    new = keys if cache is None else None
    if cache is not None and reads_new and is_extended:
        new = ops.take(keys, new_range.tensor(), axis=-1)
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
class Documents:
    """The documents of the queries and of the keys of packed rows.

    The number of a document is its first position in the row plus 1.
    """

    # Numbers, int32. A query of padding has -1 and a key of padding 0, so that neither matches.
    queries: object  # (B or 1, N or 1, T, 1)
    keys: object  # (B or 1, N or 1, S)


@dataclasses.dataclass(frozen=True)
class AttentionInputs:
    """Per-head queries, keys and values with their positions and masks.

    A plan cuts them into tiles, folds or sorts them, and attends to each tile separately. Positions
    are `PositionRange`s or int32 (B or 1, N or 1, T or S); in dense attention also (T,) and (B, T).
    In packed rows plans get positions in the row, dense attention those in the documents.
    """

    query: object  # (B, N, T, H)
    key: object  # (B, N, S, H)
    value: object  # (B, N, S, Hv)
    query_positions: object
    key_positions: object
    score: Callable  # of the score axis
    # bool (B or 1, N or 1, S), False for padding; None if all are real or the rows are packed.
    key_mask: object = None
    documents: Documents | None = None  # of packed rows
    # A predicate of `p & q` or `p | q`, which plans apply beside their own `mask_mod`: function of
    # positions (..., T, 1) and (..., 1, S), True for pairs that remain; None for all.
    mask_fn: Callable | None = None
    # For dense attention: bool, broadcasts to (B, N, T, S), False at empty slots of a cache too.
    attention_mask: object = None
    dropout_fn: Callable | None = None  # function of weights and a seed
    seed: object = None  # int32 (2,), for `dropout_fn` and patterns that draw random numbers
    tile_sizes: TileSizes = TileSizes()
    training: bool | None = None  # True if gradients follow, which read one tile at a time

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
        return ops.expand_dims(positions_by_head(self.key_positions), -1)

    def real_keys(self):
        """Return a bool (B or 1, N or 1, S), False for padding; None if all keys are real."""
        return self.key_mask if self.documents is None else self.documents.keys > 0

    def key_marks(self):
        """Return the mask of the keys (B or 1, N or 1, S, 1), all True if there is none.

        In packed rows it is the keys' numbers of documents: a pair is allowed if both are equal.
        """
        if self.documents is not None:
            return ops.expand_dims(self.documents.keys, -1)
        if self.key_mask is None:
            return ops.ones((1, 1, size(self.key, 2), 1), dtype="bool")
        return ops.expand_dims(self.key_mask, -1)

    def with_key_marks(self, marks, query_documents=None):
        """Return the inputs with `key_marks` of other keys, (B or 1, N or 1, S).

        `query_documents`: (B or 1, N or 1, T, 1), of packed rows; by default as before.
        """
        if self.documents is None:
            return self.replace(key_mask=marks)
        if query_documents is None:
            query_documents = self.documents.queries
        return self.replace(documents=Documents(query_documents, marks))

    def dense_mask(self, mask=None):
        """Return `mask` (or None) and the key, document and attention masks, for all scores.

        `mask_fn` is for plans alone.
        """
        keys = None
        if self.documents is not None:
            keys = ops.equal(self.documents.queries, ops.expand_dims(self.documents.keys, 2))
        elif self.key_mask is not None and loop_scope.values is None:
            keys = ops.expand_dims(self.key_mask, 2)
        elif self.key_mask is not None:
            keys = loop_invariant(self.key_mask, "pairs", lambda: ops.expand_dims(self.key_mask, 2))
        return combine_masks(mask, keys, self.attention_mask)

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


@dataclasses.dataclass(frozen=True)
class AttentionCall:
    """The arguments of one call of an attention layer."""

    query: object  # (B, T, D), or (B, D) for one position with a cache
    value: object  # (B, S, D)
    key: object  # (B, S, D); None for `value`
    masks: dict  # of the caller: `value_mask`, `key_mask` and `attention_mask`, each may be None
    use_causal_mask: bool
    segment_ids: object  # int (B, S), of packed rows
    query_positions: object  # of the caller, or in documents; None for the last ones
    key_positions: object
    cache: dict | None
    training: bool | None
    own: object = None  # data of a subclass, for its `prepare`

    @property
    def has_positions(self):
        return self.query_positions is not None or self.key_positions is not None

    def replace(self, **changes):
        return dataclasses.replace(self, **changes)


@dataclasses.dataclass(frozen=True)
class Prepared:
    """Result of `MultiHeadAttention.prepare`, for its `attend`."""

    inputs: AttentionInputs
    pattern: object  # of this call
    is_ordered: bool  # True if positions follow one another, in documents or in the row
    view: object = None  # `CacheView` of the keys that are read; None without a cache
    cache: dict | None = None  # the next one
    own: object = None  # data of a subclass, from its `prepare` for its `attend`
    implementation: str = "dense"  # or "blockwise", "linear", "fused": the choice of `choose`

    def replace(self, **changes):
        return dataclasses.replace(self, **changes)


def attach_keras_mask(x, mask, name):
    """Make a boolean `mask` (B, T) the implicit Keras mask of `x` (B, T, D)."""
    set_keras_mask(x, check_mask(mask, name, tuple(x.shape[:2])))


def join_masks(*parts):
    """Return the padding mask (B, S) of consecutive parts; None if no part has one.

    A part is a tensor (B, S_1, D), its mask, bool (B, S_1) or None, and the mask's name.
    """
    if all(mask is None for _, mask, _ in parts):
        return None
    masks = []
    for x, mask, name in parts:
        if mask is None:
            masks.append(ops.ones_like(x[:, :, 0], dtype="bool"))
        else:
            mask = check_mask(mask, name, tuple(x.shape[:2]))
            masks.append(ops.broadcast_to(mask, ops.shape(x)[:2]))
    return ops.concatenate(masks, axis=1)


def spread_padding_mask(mask, batch, num_keys, name="padding_mask"):
    """Check a mask (B, S) and return it as (B, 1, S); None stays None."""
    if mask is None:
        return None
    checked = check_mask(mask, name, (batch, num_keys))
    if loop_scope.values is None:
        return ops.expand_dims(checked, 1)
    return loop_invariant(mask, "spread", lambda: ops.expand_dims(checked, 1))


def spread_attention_mask(mask, batch, num_heads, length, num_keys):
    """Check a mask (T, S), (B, T, S) or (B, N, T, S) and return it with four axes; None stays."""
    if mask is None:
        return None
    pairs = (length, num_keys)
    shapes = pairs, (batch, *pairs), (batch, num_heads, *pairs)
    mask = check_mask(mask, "attention_mask", *shapes)
    if len(mask.shape) == 2:
        return ops.expand_dims(mask, (0, 1))
    return ops.expand_dims(mask, 1) if len(mask.shape) == 3 else mask


def masks_of_call(call, view, query, key):
    """Check the masks of an `AttentionCall` for heads (B, N, T, H) and (B, N, S, H).

    Return one mask of keys (B, 1, S), and the attention mask with four axes, False at the empty
    slots of a `CacheView`; None for no mask.
    """
    masks, slots = call.masks, None
    if view is not None and view.slot_mask is not None:
        slots = ops.expand_dims(view.slot_mask, (0, 1, 2))
    if all(mask is None for mask in masks.values()):
        return None, slots
    if view is not None:
        masks = {name: view.select_columns(mask, name) for name, mask in masks.items()}
    batch, num_heads, length, _ = query.shape
    num_keys = key.shape[2]
    key_mask = combine_masks(
        spread_padding_mask(masks["value_mask"], batch, num_keys, "value_mask"),
        spread_padding_mask(masks["key_mask"], batch, num_keys, "key_mask"),
    )
    pairs = spread_attention_mask(masks["attention_mask"], batch, num_heads, length, num_keys)
    return key_mask, combine_masks(slots, pairs)
