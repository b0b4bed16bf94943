"""Attention tile by tile: the part that all plans share."""

import dataclasses

import keras
from keras import ops

from keras_attn.attention.softmax import (
    at_least_float32,
    attend_logits,
    attend_logits_with_logsumexp,
)
from keras_attn.backend.tiles import for_each_tile
from keras_attn.ops.random import split_seed


@dataclasses.dataclass
class Tile:
    """Queries (B, N, t, H) and the keys and values (B, N, s, .) that they may meet.

    `mask` is boolean and `bias` is added to the logits, both broadcastable to (B, N, t, s);
    `never_empty` is True if every query is known to meet some key.
    """

    query: object
    key: object
    value: object
    query_positions: object
    key_positions: object
    mask: object = None
    bias: object = None
    never_empty: bool = False


def attend_tiles(
    inputs, cut, tiles, keys=(), visible=(None,), distances=None, log_weight=False, at_once=1
):
    """Compute the attention of each tile.

    Args:
        inputs: `AttentionInputs`, for its score and dropout.
        cut: function of a tile's part of `tiles`, then of `keys`, that returns a `Tile`.
        tiles: tensors (tiles, ...).
        keys: tensors (B, N, S, .), of which a tile gets the first `visible`: as `for_each_tile`.
        distances: `PositionRange` of all differences of query and key positions in any tile; None
            if the positions have no order.
        log_weight: bool. True to return the log weights for `merge_by_logsumexp` too.
        at_once: as `for_each_tile`.

    Returns:
        The outputs (tiles, B, N, t, Hv) and the log weights (tiles, B, N, t, 1) or None, stacked.
    """
    score, weights = _score_of_weights(inputs.score, distances)
    count = tiles[0].shape[0]
    seeds = ()
    if inputs.dropout_fn is not None:
        seeds = (split_seed(inputs.seed, count or ops.shape(tiles[0])[0]),)
    num_weights = len(weights)

    def compute(*tensors):
        drop = None
        if seeds:
            seed, *tensors = tensors
            drop = lambda weights: inputs.dropout_fn(weights, seed)  # noqa: E731
        end = len(tensors) - num_weights
        tile = cut(*tensors[:end])
        logits = score(
            tensors[end:],
            tile.query,
            tile.key,
            query_positions=tile.query_positions,
            key_positions=tile.key_positions,
        )
        if tile.bias is not None:
            logits = at_least_float32(logits)
            logits = logits + ops.cast(tile.bias, logits.dtype)
        arguments = logits, tile.value, tile.mask, drop, tile.never_empty
        if log_weight:
            return attend_logits_with_logsumexp(*arguments)
        return attend_logits(*arguments)[:1]

    tiles = (*seeds, *tiles)
    if count == 1:
        results = [x[None] for x in compute(*[x[0] for x in tiles], *keys, *weights)]
    else:
        dtype = keras.backend.standardize_dtype(inputs.value.dtype)
        dtypes = [dtype, "float64" if dtype == "float64" else "float32"]
        results = for_each_tile(
            compute,
            tiles,
            weights,
            dtypes[: 2 if log_weight else 1],
            keys=keys,
            visible=visible,
            at_once=at_once,
        )
    return (*results, None)[:2]


def blocks_per_tile(query, scores, most_scores, count, least=1):
    """Return the number of blocks that make a tile of at most `most_scores` scores.

    Args:
        query: (B, N, T, H).
        scores: scores of one block and head.
        most_scores: int.
        count: number of all blocks, at most which are returned.
        least: int. Fewest blocks, whatever their scores.
    """
    scores *= query.shape[1] * (query.shape[0] or 1)
    is_known = isinstance(scores, int) and isinstance(count, int)
    lesser, greater = (min, max) if is_known else (ops.minimum, ops.maximum)
    least = max(least, 1)
    return lesser(greater(most_scores // scores, least), greater(count, least))


def _score_of_weights(score, distances):
    """Return the score as a function of its weights and the usual arguments, and the weights.

    A tile is differentiated by its arguments. A table that a score computes once for all tiles is
    one of the weights here.
    """
    variables = score.trainable_variables
    weights = [ops.copy(variable) for variable in variables]  # tensors, as TensorFlow needs
    table = None
    if distances is not None and score.uses_positions:
        table = score.distance_table(distances)
    if table is not None:
        weights.append(table)

    def call(weights, query, key, **positions):
        if not weights:
            return score(query, key, **positions)
        if table is not None:
            *weights, positions["table"] = weights
            positions["distances"] = distances
        with keras.StatelessScope(state_mapping=list(zip(variables, weights, strict=True))):
            return score(query, key, **positions)

    return call, tuple(weights)
