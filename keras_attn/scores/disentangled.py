"""Scores of contents and of distances, each with the other."""

import math

import keras
import numpy as np
from keras import ops

from keras_attn.attention.inputs import (
    PositionRange,
    distances_between,
    fill_positions,
    positions_by_head,
)
from keras_attn.attention.relative_shift import distance_products, table_columns, table_products
from keras_attn.attention.softmax import query_keys
from keras_attn.ops.checks import check_choice, check_sizes, check_that
from keras_attn.ops.shapes import size, sizes
from keras_attn.registry import register
from keras_attn.scores.distance_score import DistanceScore

_TO_POSITION, _TO_CONTENT = "content_to_position", "position_to_content"


@register
class Disentangled(DistanceScore):
    """Score of contents with contents and with distances, both ways, as in DeBERTa.

        logit(i, j) = (q_i . k_j + q_i . K[c] + k_j . Q[c]) / sqrt(3 H),   c = bucket(i - j)

        with K alone: (q_i . k_j + q_i . K[c]) / sqrt(2 H);  with Q alone: Q[c] . k_j in place of K

    K and Q (2 num_buckets, N, H) are learned: a key and a query for each bucket of distances. Half
    of the buckets of each side hold one distance each; the ranges of the others grow with the
    distance up to `max_distance`, and all beyond share one. Where positions follow each other, time
    is O(T (T + S) H) and memory O(T (T + S)) per head. Positions in any order, and a decoding step,
    take O((T + S) H num_buckets) more.

    Use it for encoders that read whole texts, such as masked language models.

    Args:
        num_buckets: int. Number of buckets on each side, an even one with `max_distance`.
        max_distance: int. All distances from this one on share a bucket; None for as many distances
            as buckets, each with its own.
        directions: "both", or one of "content_to_position", which has K alone, and
            "position_to_content", which has Q alone.

    Call arguments and returns:
        As the base class `DistanceScore`: from (B, N, T, H) and (B, N, S, H) to (B, N, T, S).

    Raises:
        ValueError: if `num_buckets` < 1, with a `max_distance` also if it is below 4 or odd, or
            `max_distance` < `num_buckets` / 2 + 2; if `directions` is unknown.

    Example:
        >>> from keras_attn import layers, scores
        >>> layer = layers.MultiHeadAttention(8, 64, score=scores.Disentangled())

    Differs from the paper: each layer has its own K and Q, which the paper makes of one table for
        all layers by projections of each; the buckets are those of DeBERTa's second version
        (without: `max_distance=None`). The bucket of i - j serves both terms of distances, as in
        the authors' code, where eq. 4 has that of j - i in the second.

    Reference: [He et al., 2021](https://arxiv.org/abs/2006.03654), section 3.1, eq. 2 to 4; for the
        buckets [the authors' code](https://github.com/microsoft/DeBERTa).
    """

    weight_axes = {"key_table": (None, "model"), "query_table": (None, "model")}

    def __init__(self, num_buckets=256, max_distance=512, directions="both", **kwargs):
        super().__init__(**kwargs)
        check_choice(("both", _TO_POSITION, _TO_CONTENT), directions=directions)
        check_sizes(num_buckets=num_buckets)
        if max_distance is not None:
            check_sizes(4, num_buckets=num_buckets)
            check_that(num_buckets % 2 == 0, "an even number", num_buckets=num_buckets)
            check_sizes(num_buckets // 2 + 2, max_distance=max_distance)
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.directions = directions
        self.key_table = self.query_table = None

    def build(self, query_shape, key_shape=None):
        _, num_heads, _, head_dim = query_shape
        shape = (2 * self.num_buckets, num_heads, head_dim)
        tables = {"key_table": _TO_POSITION, "query_table": _TO_CONTENT}
        for name, direction in tables.items():
            if self.directions in ("both", direction):
                near_zero = keras.initializers.RandomNormal(stddev=0.02)
                setattr(self, name, self.add_weight(shape, near_zero, name=name))

    def queries(self, query):
        num_terms = 3 if self.directions == "both" else 2
        query = query * ops.cast(1 / math.sqrt(num_terms * query.shape[-1]), query.dtype)
        return query, query

    def buckets(self, distances):
        """Return the row of K and Q of each distance i - j, int32 of any shape."""
        if self.max_distance is None:
            return ops.clip(distances + self.num_buckets, 0, 2 * self.num_buckets - 1)
        # A list of all distances, in exact arithmetic: a logarithm's rounding would decide.
        half, farthest = self.num_buckets // 2, self.max_distance
        far = np.arange(farthest + 1)
        steps = np.log(np.maximum(far, half) / half) / np.log((farthest - 1) / half) * (half - 1)
        bucket = np.where(far <= half, far, np.ceil(steps - 1e-9).astype("int64") + half)
        bucket = np.concatenate([-bucket[:0:-1], bucket]) + self.num_buckets
        bucket = np.clip(bucket, 0, 2 * self.num_buckets - 1).astype("int32")
        return ops.take(bucket, ops.clip(distances, -farthest, farthest) + farthest)

    def distance_table(self, distances):
        """Return K of all `distances` and Q of all distances from keys to queries."""
        tables = {}
        if self.key_table is not None:
            tables["keys"], _ = self.table_of_call(distances, None, None)
        if self.query_table is not None:
            tables["queries"] = self._columns(self.query_table, _reversed(distances), -1)
        return tables

    def table_of_call(self, needed, query_positions, num_keys):
        return self._columns(self.key_table, needed, 1), needed

    def _columns(self, table, distances, sign):
        """Return the rows (N, H, L + 1) of `table_columns(distances)` times `sign`."""
        rows = self.buckets(sign * table_columns(distances))
        return ops.transpose(ops.take(ops.cast(table, self.compute_dtype), rows, axis=0), (1, 2, 0))

    def products(self, query, i, j):
        distances = ops.expand_dims(i, -1) - ops.expand_dims(j, -2)
        return _select(query, self.key_table, self.buckets(distances))

    def products_of_tile(self, length, num_keys, head_dim, has_table):
        products = super().products_of_tile(length, num_keys, head_dim, has_table)
        if self.directions == _TO_POSITION:
            return products
        if self.directions == _TO_CONTENT:
            products = length * num_keys * head_dim
        if has_table and length > 1:
            return products + table_products(num_keys, length, head_dim)
        return products + self.irregular_products(num_keys, length, head_dim)

    def irregular_products(self, length, num_keys, head_dim):
        return length * head_dim * 2 * self.num_buckets

    def call(
        self, query, key, query_positions=None, key_positions=None, table=None, distances=None
    ):
        positions = fill_positions(query, key, query_positions, key_positions)
        if self.key_table is None:
            logits = query_keys(self.queries(query)[0], key)
        else:
            key_table = None if table is None else table["keys"]
            logits = super().call(query, key, *positions, table=key_table, distances=distances)
        if self.query_table is None:
            return logits
        key, _ = self.queries(key)
        needed = distances_between(*positions)
        if needed is None or query.shape[2] == 1:
            i, j = map(positions_by_head, positions)
            distances = ops.expand_dims(i, -2) - ops.expand_dims(j, -1)  # (B or 1, N or 1, S, T)
            products = _select(key, self.query_table, self.buckets(distances))
        else:
            if table is None:
                table, distances = self.distance_table(needed), needed
            reversed_ = _reversed(distances), _reversed(needed)
            products = distance_products(key, table["queries"], *reversed_)
        return logits + ops.cast(ops.swapaxes(products, 2, 3), logits.dtype)


def _reversed(distances):
    """Return the distances from keys to queries of those from queries to keys."""
    return PositionRange(-distances.last, distances.length, distances.step)


def _select(x, table, rows):
    """Return products (B, N, T, S) of x (B, N, T, H) with the chosen rows of its head's table."""
    products = ops.matmul(x, ops.transpose(ops.cast(table, x.dtype), (1, 2, 0)))
    shape = (*sizes(products)[:3], size(rows, 3))
    return ops.take_along_axis(products, ops.broadcast_to(rows, shape), axis=3)
