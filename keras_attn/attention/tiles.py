"""Attention tile by tile: what all plans have in common."""

import dataclasses

import keras
from keras import ops

from keras_attn.attention.softmax import attend, attend_with_logsumexp
from keras_attn.backend.tiles import for_each_tile
from keras_attn.ops.random import split_seed


@dataclasses.dataclass
class Tile:
    """Queries (B, N, t, H) and the keys and values (B, N, s, .) that they may meet.

    `mask` is boolean and `bias` is added to the logits, both broadcastable to (B, N, t, s);
    `never_empty` tells that every query may meet some key.
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
    operands, cut, tiles, keys=(), visible=(None,), distances=None, log_weight=False, at_once=1
):
    """The attention of each tile, stacked.

    Args:
        operands: gives score and dropout.
        cut: function of a tile's part of `tiles`, then of `keys`, that returns a `Tile`.
        tiles: tensors (tiles, ...).
        keys: tensors (B, N, S, .), of which a tile gets the first `visible`: as `for_each_tile`.
        distances: `PositionRange` of all differences of query and key positions in any tile; None
            if the positions have no order.
        log_weight: bool. Whether the log weights for `merge` are needed.
        at_once: as `for_each_tile`.

    Returns:
        The outputs (tiles, B, N, t, Hv) and the log weights (tiles, B, N, t, 1) or None.
    """
    score, weights = _with_weights_as_arguments(operands.score, distances)
    count = tiles[0].shape[0] or ops.shape(tiles[0])[0]
    seeds = () if operands.drop is None else (split_seed(operands.seed, count),)
    num_weights = len(weights)

    def compute(*tensors):
        drop = None
        if seeds:
            seed, *tensors = tensors
            drop = operands.drop_by(seed)
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
            logits = ops.cast(logits, "float32") + tile.bias
        if log_weight:
            return attend_with_logsumexp(logits, tile.value, tile.mask, drop, tile.never_empty)
        return attend(logits, tile.value, tile.mask, drop, tile.never_empty)[:1]

    dtypes = [keras.backend.standardize_dtype(operands.value.dtype), "float32"]
    results = for_each_tile(
        compute,
        (*seeds, *tiles),
        weights,
        dtypes[: 2 if log_weight else 1],
        keys=keys,
        visible=visible,
        at_once=at_once,
    )
    return (*results, None)[:2]


def blocks_in_tile(query, scores, most_scores, count, least=1):
    """How many of `count` blocks, of so many scores a head, make a tile of at most `most_scores`.

    At least `least` do, whatever the scores.
    """
    scores *= query.shape[1] * (query.shape[0] or 1)
    known = isinstance(scores, int) and isinstance(count, int)
    lesser, greater = (min, max) if known else (ops.minimum, ops.maximum)
    least = max(least, 1)
    return lesser(greater(most_scores // scores, least), greater(count, least))


def _with_weights_as_arguments(score, distances):
    """The score as a function of its weights and the usual arguments, and the weights.

    A tile is differentiated by what is handed to it. What a score can compute once for all tiles
    is a weight here too.
    """
    variables = score.trainable_variables if isinstance(score, keras.layers.Layer) else []
    weights = [ops.copy(variable) for variable in variables]  # tensors, which TensorFlow wants
    table = distances is not None and hasattr(score, "distance_table")
    if table:
        weights.append(score.distance_table(distances))

    def call(weights, query, key, **positions):
        if not weights:
            return score(query, key, **positions)
        if table:
            *weights, positions["table"] = weights
            positions["distances"] = distances
        with keras.StatelessScope(state_mapping=list(zip(variables, weights, strict=True))):
            return score(query, key, **positions)

    return call, tuple(weights)
