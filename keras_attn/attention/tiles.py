"""Attention tile by tile: the part that all plans share."""

import dataclasses
from typing import NamedTuple

import keras
from keras import ops

from keras_attn.attention.softmax import add_bias, attend_logits, attend_logits_with_logsumexp
from keras_attn.backend.loops import for_each_tile
from keras_attn.ops.random import split_seed
from keras_attn.ops.shapes import greater, lesser, size


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
        arguments = logits, tile.value, tile.mask, drop, tile.never_empty
        if log_weight:
            return attend_logits_with_logsumexp(*arguments)
        return attend_logits(*arguments)[:1]

    if tiles[0].shape[0] == 1:
        results = [x[None] for x in compute(*[x[0] for x in tiles], *keys, *weights)]
    else:
        dtype = keras.backend.standardize_dtype(inputs.value.dtype)
        dtypes = [dtype, "float64" if dtype == "float64" else "float32"][: 1 + log_weight]
        results = for_each_tile(compute, tiles, weights, dtypes, keys, visible, at_once)
    return (*map(join, results), None)[:2]


def blocks_per_tile(query, scores, most_scores, count, least=1):
    """Return the number of blocks that make a tile of at most `most_scores` scores.

    These are at least `least` of `count`; one block and head of `query` (B, N, T, H) has `scores`.
    """
    scores *= query.shape[1] * (query.shape[0] or 1)
    least = max(least, 1)
    return lesser(greater(most_scores // scores, least), greater(count, least))


def _score_of_weights(score, distances):
    """Return the score as a function of its weights and the usual arguments, and the weights.

    A tile is differentiated by its arguments, so a table for all tiles is one of the weights here.
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
