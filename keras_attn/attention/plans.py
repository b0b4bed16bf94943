"""Plans: ways to compute attention tile by tile that leave out what a pattern forbids."""

import dataclasses
import functools
from typing import NamedTuple

import keras
from keras import ops

from keras_attn.attention.inputs import (
    PositionRange,
    TileSizes,
    combine_masks,
    distances_between,
    first_positions,
    positions_by_head,
)
from keras_attn.attention.segments import pairs_in_documents
from keras_attn.attention.softmax import add_bias, attend_logits, attend_logits_with_logsumexp
from keras_attn.backend.loops import for_each_tile, tile_loops
from keras_attn.backend.operations import switch
from keras_attn.ops.random import split_seed
from keras_attn.ops.shapes import (
    UNKNOWN_LENGTH,
    ceil_div,
    greater,
    lesser,
    pad,
    size,
    sizes,
    slice_axis,
    stack_blocks,
    windows_of_axis,
)


class Plan:
    """A way to compute attention over the pairs that a pattern allows.

    A subclass overrides `attend_row`, which gets consecutive positions, the queries the last of
    them. It applies `mask_mod`, and the key mask and `mask_fn` of the inputs, to each tile;
    `attend_tiles` applies the score and the dropout. A query without a key gets zero, and the log
    weight `FORBIDDEN`. `tiles` and `keys_per_query` estimate the cost before a call. A subclass
    whose `attend_row` masks documents too overrides `attend_documents`.

    Attributes:
        mask_mod: function of query positions (..., T, 1) and key positions (..., 1, S), True for
            pairs that may attend.
    """

    def __init__(self, mask_mod):
        self.mask_mod = mask_mod

    def attend(self, inputs, log_weight=False):
        """Compute attention over the allowed pairs of consecutive positions.

        Returns:
            Output (B, N, T, Hv), and with `log_weight` the log weight (B, N, T, 1) for
            `merge_by_logsumexp`, else None.
        """
        if inputs.documents is None:
            return self.attend_row(inputs, log_weight)
        return self.attend_documents(inputs.in_row(), log_weight)

    def attend_row(self, inputs, log_weight=False):
        """Compute `attend` for rows of one sequence each, or of the documents of the inputs."""
        raise NotImplementedError(f"{type(self).__name__} must define `attend_row`.")

    def attend_documents(self, inputs, log_weight=False):
        """Compute `attend` for packed rows, whose positions count in the row, from all pairs."""
        return Chunked(self.mask_mod).attend_row(inputs, log_weight)

    def tiles(self, inputs):
        """Return the `TileCount`s of `attend_row` for symbolic `AttentionInputs`."""
        raise NotImplementedError(f"{type(self).__name__} must define `tiles`.")

    def extra_products(self, inputs):
        """Return the multiply-adds of `attend_row` and of its gradient that are not in tiles."""
        return 0, 0

    def keys_per_query(self, num_keys):
        """Return how many of `num_keys` keys are computed for a query."""
        return num_keys

    def is_faster(self, length, num_keys, long=2048):
        """Return True if the plan is expected to be faster than the whole matrix of scores.

        A plan that leaves out half of the keys is, and one that leaves out none from `long` queries
        and keys on. `length` or `num_keys` may be None, for any number; `num_keys` is not small.
        """
        computed = self.keys_per_query(num_keys or UNKNOWN_LENGTH)
        if num_keys is None:
            return computed < UNKNOWN_LENGTH
        return 2 * computed <= num_keys or (length or 0) * num_keys >= long * long


class TileCount(NamedTuple):
    """Tiles of a plan that have the same size, over all rows and heads.

    Attributes:
        number, at_once: ints. Number of all tiles, and of those that are computed at once.
        length, num_keys: ints. Number of queries and of keys of each.
        is_loop: bool. True if they are not computed all at once, and so again for the gradient.
        num_distances: int. Distances for which a score makes one table, at the first tiles of a
            plan; 0 at later ones, None where positions are irregular and there is no table.
        key_copies: float. How often a plan keeps a key and its value, where groups overlap.
    """

    number: int
    at_once: int
    length: int
    num_keys: int
    is_loop: bool
    num_distances: int | None = None
    key_copies: float = 1.0


def resize(inputs, length=None, num_keys=None):
    """Return symbolic `AttentionInputs` for which plans count their tiles, of other lengths."""

    def resized(x, size):
        shape = tuple(x.shape)
        return x if size is None else keras.KerasTensor((*shape[:2], size, shape[3]), x.dtype)

    key, value = (resized(x, num_keys) for x in (inputs.key, inputs.value))
    return inputs.replace(query=resized(inputs.query, length), key=key, value=value)


@dataclasses.dataclass
class Tile:
    """Queries (B, N, t, H) and the keys and values (B, N, s, .) that they may attend to."""

    query: object
    key: object
    value: object
    query_positions: object
    key_positions: object
    mask: object = None  # boolean, broadcasts to (B, N, t, s)
    bias: object = None  # added to the logits, broadcasts likewise
    never_empty: bool = False  # True if every query is known to have a key


def attend_tiles(
    inputs, cut, join, tiles, keys=(), visible=(None,), distances=None, log_weight=False, at_once=1
):
    """Compute the attention of each tile, and join the results.

    Return the output (B, N, T, Hv) and, with `log_weight`, the log weight (B, N, T, 1) or None.

    Args:
        inputs: `AttentionInputs`, for its score and dropout.
        cut: function of a tile's part of `tiles`, then of `keys`, that returns a `Tile`.
        join: function of the stacked results (tiles, B, N, t, .) that returns (B, N, T, .).
        tiles: tensors (tiles, ...).
        keys, visible, at_once: as `for_each_tile` has them.
        distances: `PositionRange` of all differences of positions in any tile; None if irregular.
    """
    score, weights = _score_of_weights(inputs.score, distances)
    has_dropout = inputs.dropout_fn is not None
    if has_dropout:
        tiles = (split_seed(inputs.seed, size(tiles[0], 0)), *tiles)

    def compute(*tensors):
        drop = None
        if has_dropout:
            seed, *tensors = tensors
            drop = inputs.dropout(seed)
        end = len(tensors) - len(weights)
        tile = cut(*tensors[:end])
        positions = {"query_positions": tile.query_positions, "key_positions": tile.key_positions}
        logits = score(tensors[end:], tile.query, tile.key, **positions)
        logits = add_bias(logits, tile.bias)
        attend = attend_logits_with_logsumexp if log_weight else attend_logits
        output, log_sum = attend(logits, tile.value, tile.mask, drop, tile.never_empty)
        return (output, log_sum) if log_weight else (output,)

    if tiles[0].shape[0] == 1:
        results = [ops.expand_dims(x, 0) for x in compute(*[x[0] for x in tiles], *keys, *weights)]
    else:
        dtype = keras.backend.standardize_dtype(inputs.value.dtype)
        dtypes = [dtype, "float64" if dtype == "float64" else "float32"][: 1 + log_weight]
        results = for_each_tile(compute, tiles, weights, dtypes, keys, visible, at_once)
    return (*map(join, results), None)[:2]


def is_one_tile(inputs, count, keys):
    """Return True if all queries are one tile: a loop has lists of tensors, which LiteRT lacks.

    Outside training a graph for an unknown `count` of blocks, or queries, has no loop where each
    query has no more `keys` than its vector has entries: there a loop saves little memory.
    """
    if inputs.training or isinstance(count, int) or not isinstance(keys, int):
        return not tile_loops.are_built
    return not tile_loops.are_built or keys <= inputs.query.shape[3]


def group_blocks(inputs, count, block, keys, least=1):
    """Return the number of blocks of a tile, at least `least` of `count`, and of the tiles.

    A block has `block` queries with so many `keys` each.
    """
    query, most_scores, least = inputs.query, inputs.tile_sizes.block_scores, max(least, 1)
    if is_one_tile(inputs, count, keys):
        return greater(count, least), 1
    scores = block * keys * query.shape[1] * (query.shape[0] or 1)
    group = lesser(greater(most_scores // scores, least), greater(count, least))
    return group, ceil_div(count, group)


def _score_of_weights(score, distances):
    """Return the score as a function of its weights and the usual arguments, and the weights.

    Gradients reach only the arguments of a tile, so its weights and the table of distances, which
    all tiles share, are arguments.
    """
    variables = score.trainable_variables
    weights = [ops.copy(variable) for variable in variables]  # tensors, as TensorFlow needs
    by_distance = distances is not None and score.uses_positions
    table = score.distance_table(distances) if by_distance else None
    tables = [] if table is None else keras.tree.flatten(table)

    def call(weights, query, key, **positions):
        if not weights:
            return score(query, key, **positions)
        if tables:
            parts = weights[len(variables) :]
            positions["table"] = keras.tree.pack_sequence_as(table, parts)
            positions["distances"] = distances
            weights = weights[: len(variables)]
        with keras.StatelessScope(state_mapping=list(zip(variables, weights, strict=True))):
            return score(query, key, **positions)

    return call, (*weights, *tables)


class Chunked(Plan):
    """All keys, some queries at a time.

    Time O(T S), with `visible` little more than the visible pairs; memory O(T + S) per head.

    Args:
        mask_mod: function of query positions (..., T, 1), key positions (..., 1, S) and `extras`;
            None allows all.
        visible: function of n that returns the most keys that the first n queries reach; or None.
        bias: function of the same arguments as `mask_mod`, added to the logits.
        extras: tensors (B or 1, N or 1, T, .), cut like the queries.
    """

    def __init__(self, mask_mod, visible=None, bias=None, extras=()):
        super().__init__(mask_mod)
        self.visible, self.bias, self.extras = visible, bias, extras

    def attend_row(self, inputs, log_weight=False):
        batch, num_heads, length, _ = sizes(inputs.query)
        groups, in_group, chunk, seen = self._cut_into_chunks(inputs)
        count = groups * in_group
        query_positions, key_positions = inputs.query_positions, inputs.key_positions
        is_ordered = isinstance(query_positions, PositionRange)
        documents = inputs.documents
        key_marks = inputs.key_mask if documents is None else documents.keys

        def cut_queries(x):  # (B, N, T, H) -> (chunks, B, N, t, H)
            return stack_blocks(pad(x, 0, count * chunk - size(x, 2)), count, block=chunk)

        def join(x):  # (chunks, B, N, t, H) -> (B, N, T, H)
            x = ops.transpose(x, (1, 2, 0, 3, 4))
            x = ops.reshape(x, (batch, num_heads, count * chunk, x.shape[-1]))
            return slice_axis(x, 0, length, axis=2)

        def cut(query, i, *tensors):
            *extras, key, value = tensors
            positions, marks = key_positions, key_marks
            if groups > 1:
                positions = first_positions(positions, size(key, 2))
                marks = first_positions(marks, size(key, 2))
            near = i[..., 0]
            if is_ordered:
                near = PositionRange(i[0, 0, 0, 0], chunk, query_positions.step)
            j = ops.expand_dims(positions_by_head(positions), 2)
            real = None if marks is None else ops.expand_dims(marks, 2)
            if documents is not None:
                *extras, document = extras
                i, j, real = pairs_in_documents(i, j, document, real)
            mask = combine_masks(
                real,
                None if self.mask_mod is None else self.mask_mod(i, j, *extras),
                None if inputs.mask_fn is None else inputs.mask_fn(i, j),
            )
            bias = None if self.bias is None else self.bias(i, j, *extras)
            return Tile(query, key, value, near, positions, mask, bias)

        if is_ordered:
            # The table of distances covers the queries that fill the last chunk too.
            query_positions = first_positions(query_positions, count * chunk)
        distances = distances_between(query_positions, key_positions)
        i = ops.expand_dims(positions_by_head(query_positions), -1)
        queries = [inputs.query, i, *self.extras]
        if documents is not None:
            queries.append(documents.queries)
        tiles = [cut_queries(x) for x in queries]
        keys = inputs.key, inputs.value
        return attend_tiles(inputs, cut, join, tiles, keys, seen, distances, log_weight)

    attend_documents = attend_row

    def _cut_into_chunks(self, inputs):
        """Return the number of groups, of chunks in a group, of queries in a chunk, and of keys.

        The last is a list of the number of keys that each group reads; [None] for all of them.
        """
        _, num_heads, length, _ = sizes(inputs.query)
        num_keys = size(inputs.key, 2)
        tile_sizes, groups = inputs.tile_sizes, 1
        if is_one_tile(inputs, length, num_keys):
            return 1, 1, greater(length, 1), [None]
        if self.visible is not None:
            groups = tile_sizes.num_groups
            if isinstance(length, int):
                groups = max(1, min(groups, length // tile_sizes.least_group))
        group = ceil_div(greater(length, 1), groups)
        scores_of_query = (inputs.query.shape[0] or 1) * num_heads * greater(num_keys, 1)
        most = tile_sizes.chunk_scores // scores_of_query // 32 * 32
        in_group = ceil_div(group, lesser(group, greater(most, 32)))
        chunk = ceil_div(group, in_group)
        seen = [None]
        if groups > 1:
            ends = [lesser((n + 1) * in_group * chunk, length) for n in range(groups)]
            seen = [greater(self.visible(end), 1) for end in ends]
        return groups, in_group, chunk, seen

    def tiles(self, inputs):
        groups, in_group, chunk, seen = self._cut_into_chunks(inputs)
        batch, num_heads, num_keys, _ = inputs.key.shape
        distances = [groups * in_group * chunk + num_keys, *[0] * (groups - 1)]
        at_once, is_loop = batch * num_heads, groups * in_group > 1
        return [
            TileCount(in_group * at_once, at_once, chunk, keys or num_keys, is_loop, count)
            for keys, count in zip(seen, distances, strict=True)
        ]


class AllKeys(Plan):
    """All keys, or all up to the query if `causal`.

    Time O(T S), a little more than half of it if causal; for packed rows O(T L) with documents of
    at most L tokens. Memory O(T + S) per head.
    """

    def __init__(self, mask_mod, causal):
        super().__init__(mask_mod)
        self.causal = causal

    def attend_row(self, inputs, log_weight=False):
        return self._chunked(inputs).attend_row(inputs, log_weight)

    def attend_documents(self, inputs, log_weight=False, most=1024):
        """Compute attention in packed rows by a window as wide as the longest document.

        The width is a power of two times the shortest one, which keeps the shapes fixed. All keys
        are computed where a document is longer than half of the row, or than `most`.
        """
        num_keys = size(inputs.key, 2)
        documents = inputs.documents.keys[:, 0]
        index = ops.arange(num_keys, dtype="int32")
        longest = 1 + ops.max(ops.where(documents > 0, index - documents + 1, 0))

        def window(reach):
            allowed = self.mask_mod if self.causal else None
            plan = Window(allowed, reach, self.causal).blocks(inputs.tile_sizes)
            return plan.attend_row(inputs, log_weight)

        return attend_by_reach(
            inputs,
            window,
            lambda: self.attend_row(inputs, log_weight),
            longest,
            min(most, num_keys) if isinstance(num_keys, int) else most,
            least=inputs.tile_sizes.most_block,
            is_bounded=False,
        )

    def tiles(self, inputs):
        return self._chunked(inputs).tiles(inputs)

    def is_faster(self, length, num_keys, long=2048):
        # With as many queries as keys it leaves out nearly half of the pairs.
        is_square = self.causal and length == num_keys is not None
        return is_square or super().is_faster(length, num_keys, long)

    def _chunked(self, inputs):
        if not self.causal:
            return Chunked(None)
        earlier = size(inputs.key, 2) - size(inputs.query, 2)
        return Chunked(self.mask_mod, visible=lambda end: earlier + end)


class FirstKeys(Plan):
    """The first `count` keys, at least one, for all queries.

    Time and memory O(T count) per head.
    """

    def __init__(self, mask_mod, count):
        super().__init__(mask_mod)
        self.count = max(count, 1)

    def attend_row(self, inputs, log_weight=False):
        count = lesser(self.count, size(inputs.key, 2))
        first = inputs.replace(
            key=slice_axis(inputs.key, 0, count, axis=2),
            value=slice_axis(inputs.value, 0, count, axis=2),
            key_positions=first_positions(inputs.key_positions, count),
            key_mask=first_positions(inputs.key_mask, count),
        )
        return Chunked(self.mask_mod).attend_row(first, log_weight)

    def tiles(self, inputs):
        first = resize(inputs, num_keys=min(self.count, inputs.key.shape[2]))
        return Chunked(self.mask_mod).tiles(first)

    def keys_per_query(self, num_keys):
        return min(num_keys, self.count)


def replace_first_queries(x, rows, positions, count):
    """Replace rows of x (B, N, T, H), whose positions are below `count`, by other rows.

    `rows` (B, N, t, H) are of the first t queries, and `positions` are theirs.
    """
    is_first = ops.expand_dims(positions_by_head(positions), -1) < count
    length = size(rows, 2)
    rows = ops.where(is_first, rows, slice_axis(x, 0, length, axis=2))
    rest = slice_axis(x, length, size(x, 2) - length, axis=2)
    return ops.concatenate([rows, rest], axis=2)


class BlockLocal(Plan):
    """The keys of a query's own block and of neighbouring blocks.

    Time O(T (1 + before + after) block) and memory O(T + S) per head.

    Args:
        mask_mod: function of query positions (..., T, 1), key positions (..., 1, S) and `extras`;
            None allows all of the window.
        block: int. Length t of a block. before, after: ints. Neighbouring blocks.
        repeats: bool. True if `mask_mod` is the same for every block and lets a query attend to the
            key at its own position: then it is computed once, not in every tile.
        bias: function of the same arguments, added to the logits.
        extras: tensors (B or 1, N or 1, T, .), cut like the queries.
        spacing: int. The regular distance of positions that are no `PositionRange`; None if none.
    """

    def __init__(
        self,
        mask_mod,
        block,
        before=0,
        after=0,
        *,
        repeats=False,
        bias=None,
        extras=(),
        spacing=None,
    ):
        super().__init__(mask_mod)
        self.block, self.before, self.after, self.repeats = block, before, after, repeats
        self.bias, self.extras, self.spacing = bias, extras, spacing

    def attend_row(self, inputs, log_weight=False):
        layout, block = BlockLayout(inputs, self.block, self.before, self.after), self.block
        documents, near = inputs.documents, self._positions_of_first_block(inputs, layout)
        distances = None if near is None else distances_between(*near)
        pairs = None
        if self.repeats:
            first = self.before * block
            i, j = first + ops.arange(block), ops.arange(layout.window)
            pairs = self.mask_mod(ops.expand_dims(i, 1), ops.expand_dims(j, 0))
        is_same_in_all = self.repeats and inputs.mask_fn is None
        never_empty = is_same_in_all and inputs.real_keys() is None
        needs_positions = not (is_same_in_all and near and self.bias is None)

        queries = [inputs.query, *self.extras]
        keys = [inputs.key, inputs.value, inputs.key_marks()]
        if documents is not None:
            queries.insert(1, documents.queries)
        if needs_positions:
            queries.append(ops.expand_dims(positions_by_head(inputs.query_positions), -1))
            keys.append(inputs.positions_of_keys())
        num_queries = len(queries)

        def cut(*tensors):
            query, *extras = tensors[:num_queries]
            key, value, *marks_and_positions = layout.windows(tensors[num_queries:])
            marks, *key_positions = [ops.swapaxes(x, -1, -2) for x in marks_and_positions]
            mask, bias, i, j = marks, None, None, None
            if documents is not None:
                document, *extras = extras
                mask = ops.equal(document, marks)
            if pairs is not None:
                mask = ops.logical_and(mask, pairs)
            if needs_positions:
                (*extras, i), (j,) = extras, key_positions
                # Row numbers, which `LSH` passes, are no positions in the row.
                if documents is not None and near is not None:
                    i, j, _ = pairs_in_documents(i, j, document, marks)
                if pairs is None and self.mask_mod is not None:
                    mask = ops.logical_and(mask, self.mask_mod(i, j, *extras))
                mask = combine_masks(mask, inputs.mask_fn and inputs.mask_fn(i, j))
                bias = None if self.bias is None else self.bias(i, j, *extras)
            flat = layout.flatten([query, key, value, mask, bias, i, j])
            query, key, value, mask, bias, i, j = flat
            i, j = near or (i[..., 0], j[..., 0, :])
            return Tile(query, key, value, i, j, mask, bias, never_empty)

        tiles = (*layout.cut_queries(queries), *layout.cut_keys(keys))
        options = {"distances": distances, "log_weight": log_weight, "at_once": 2}
        return attend_tiles(inputs, cut, layout.join, tiles, **options)

    def attend_documents(self, inputs, log_weight=False):
        # A document may begin anywhere in a block, so its blocks are not those of the row.
        if self.mask_mod is None:
            raise ValueError(
                "`BlockLocal` needs a `mask_mod` for packed rows, whose documents begin anywhere. "
                "Received: mask_mod=None."
            )
        return Chunked(self.mask_mod, None, self.bias, self.extras).attend_row(inputs, log_weight)

    def _positions_of_first_block(self, inputs, layout):
        """Return the `PositionRange`s of a block's queries and keys if they serve all blocks.

        They do for a score of distances, which are the same in every block; None for others.
        """
        step, score = self.spacing, inputs.score
        if isinstance(inputs.query_positions, PositionRange):
            step = inputs.query_positions.step
        if step is None or score.uses_positions and not score.is_relative:
            return None
        queries = PositionRange(self.before * self.block * step, self.block, step)
        return queries, PositionRange(0, layout.window, step)

    def tiles(self, inputs):
        layout = BlockLayout(inputs, self.block, self.before, self.after)
        groups, window = layout.groups, layout.window
        at_once = layout.group * layout.batch * inputs.query.shape[1]
        distances = self.block + window
        tiles = TileCount(groups * at_once, at_once, self.block, window, groups > 1, distances)
        return [tiles._replace(key_copies=1 + layout.neighbours / layout.group)]

    def keys_per_query(self, num_keys):
        return min(num_keys, (self.before + 1 + self.after) * self.block)


class BlockLayout:
    """Cuts a sequence into tiles of blocks, and joins the results of the tiles.

    Blocks of length t are aligned to the keys; the queries are the last T of S positions. A tile
    holds `group` blocks of queries, and the keys of these blocks and of their neighbours, `before`
    and `after` each block.
    """

    def __init__(self, inputs, block, before, after):
        self.batch, _, self.length, _ = sizes(inputs.query)
        self.num_keys = size(inputs.key, 2)
        self.block, self.before, self.neighbours = block, before, before + after
        self.window = (1 + self.neighbours) * block  # keys that a block of queries attends to
        self.first = self.num_keys - self.length  # key at the position of the first query
        self.start = self.first // block * block  # first key of the first block
        count = greater(ceil_div(self.num_keys - self.start, block), 1)  # a loop needs a tile
        # With fewer blocks than neighbours, tiles would overlap twice.
        parts = group_blocks(inputs, count, block, self.window, self.neighbours)
        self.group, self.groups = parts  # blocks of a tile, number of tiles

    def cut_queries(self, tensors):
        """(B, N, T, H) -> (groups, group, B, N, t, H), each tensor."""
        front = self.first - self.start
        back = self.groups * self.group * self.block - front - self.length
        counts, block = (self.groups, self.group), self.block
        return [stack_blocks(pad(x, front, back), *counts, block=block) for x in tensors]

    def cut_keys(self, tensors):
        """(B, N, S, H) -> (groups, group + neighbours, B, N, t, H), each tensor."""
        groups = self.groups + 1 if self.neighbours else self.groups
        total, front = groups * self.group * self.block, self.before * self.block
        back = self.start + total - front - self.num_keys
        stacked = []
        for x in tensors:
            x = slice_axis(pad(x, front, back), self.start, total, axis=2)
            x = stack_blocks(x, groups, self.group, block=self.block)
            if self.neighbours:
                own = slice_axis(x, 0, self.groups, axis=0)
                ahead = slice_axis(x, 1, self.groups, axis=0)
                ahead = slice_axis(ahead, 0, self.neighbours, axis=1)
                x = ops.concatenate([own, ahead], axis=1)
            stacked.append(x)
        return stacked

    def windows(self, tensors):
        """(group + neighbours, B, N, t, H) -> (group, B, N, window, H), each tensor of a tile."""
        if not self.neighbours:
            return tensors
        count = 1 + self.neighbours
        return [ops.concatenate(windows_of_axis(x, count, self.group), axis=3) for x in tensors]

    def flatten(self, tensors):
        """(group, B or 1, N, t, H) -> (group * B, N, t, H), each tensor of a tile; None stays."""
        flat = []
        for x in tensors:
            if x is not None:
                shape = sizes(x)
                if x.shape[1] == 1:
                    x = ops.broadcast_to(x, (shape[0], self.batch, *shape[2:]))
                x = ops.reshape(x, (shape[0] * self.batch, *shape[2:]))
            flat.append(x)
        return flat

    def join(self, x):
        """(groups, group * B, N, t, H) -> (B, N, T, H)."""
        blocks, num_heads, width = self.groups * self.group, x.shape[2], x.shape[4]
        x = ops.reshape(x, (blocks, self.batch, num_heads, self.block, width))
        x = ops.transpose(x, (1, 2, 0, 3, 4))
        x = ops.reshape(x, (self.batch, num_heads, blocks * self.block, width))
        return slice_axis(x, self.first - self.start, self.length, axis=2)


class Window(Plan):
    """The keys up to a distance from a query, by blocks that are as long as suits the processor.

    Args:
        mask_mod: function of positions that depends on their distance alone and allows a query the
            key at its own position, which is not checked: `BlockLocal` takes any other. None allows
            all of the blocks that the window reaches.
        window: int. Number of keys that a query attends to, itself included; without `causal`, to
            each side.
        causal: bool. If False, the window reaches to both sides.
    """

    def __init__(self, mask_mod, window, causal):
        super().__init__(mask_mod)
        self.window, self.causal = window, causal

    def blocks(self, tile_sizes):
        """Return the `BlockLocal` for these `TileSizes`."""
        block = min(self.window, tile_sizes.most_block)
        before = -(-(self.window - 1) // block)
        after = 0 if self.causal else before
        repeats = self.mask_mod is not None
        return BlockLocal(self.mask_mod, block, before, after, repeats=repeats)

    def attend_row(self, inputs, log_weight=False):
        return self.blocks(inputs.tile_sizes).attend_row(inputs, log_weight)

    attend_documents = attend_row

    def tiles(self, inputs):
        return self.blocks(inputs.tile_sizes).tiles(inputs)

    def keys_per_query(self, num_keys):
        return self.blocks(TileSizes).keys_per_query(num_keys)


def window_reaches(num_keys, most, tile_sizes, least=1):
    """Return the reaches, in keys, of the windows of `attend_by_reach`: each twice the one before.

    The last is `most`, or the first above half of the keys if their number is an int.
    """
    longest = min(most, num_keys // 2) if isinstance(num_keys, int) else most
    reaches, reach = [], 0
    while reach < longest:
        reach = min(max(2 * reach, tile_sizes.least_window, least), most)
        reaches.append(reach)
    return reaches


def attend_by_reach(inputs, window, whole, longest, most, least=1, is_bounded=True):
    """Compute attention by the narrowest window that holds all keys in reach.

    The shape of a window is fixed when a graph is built, but the reach is known only when it runs:
    the graph holds several windows, and chooses one. Return the output and the log weight or None.

    Args:
        window: function of a reach, an int, that returns the results of `Plan.attend` for it.
        whole: function that returns the results of all keys, without a window.
        longest: int32 scalar, the number of keys in reach.
        most, least: ints. Bounds of the windows' reaches.
        is_bounded: bool. True if `longest` is never above `most`.
    """
    num_keys = size(inputs.key, 2)
    reaches = window_reaches(num_keys, most, inputs.tile_sizes, least)
    branches = [functools.partial(window, reach) for reach in reaches]
    number = sum(ops.cast(longest > reach, "int32") for reach in reaches)
    if not is_bounded or not isinstance(num_keys, int) or 2 * most > num_keys:
        branches.append(whole)
        number = ops.where(2 * longest > num_keys, len(reaches), number)

    def tensors_of(branch):  # `switch` takes no None
        return tuple(x for x in branch() if x is not None)

    results = switch(number, [functools.partial(tensors_of, branch) for branch in branches])
    return (*results, None)[:2]
