"""Scores of keys and of their distances, learned one by one."""

import math

import keras
from keras import ops

from keras_attn.attention.relative_shift import table_columns
from keras_attn.ops.checks import check_sizes
from keras_attn.ops.shapes import pad, size, sizes
from keras_attn.registry import register
from keras_attn.scores.distance_score import DistanceScore


@register
class LearnedRelative(DistanceScore):
    """Score of a query with a key to which a vector for its distance has been added.

        logit(i, j) = q_i . (k_j + p_{i-j}) / sqrt(H),   p_d = 0 unless 0 <= d < max_distance

    p (max_distance, H) is learned and shared by all heads. Goes with `AdaptiveSpan`, whose heads
    look no further than its `max_span`: give `max_distance` the same number, or one more where the
    span leaves out the query's own position. Time O(T (T + S) H) and memory O(T (T + S)) per head
    where positions follow each other, else O(T max_distance H) and O(T max_distance).

    Use it for heads with a limited reach, such as those of `AdaptiveSpan` and `Local`.

    Args:
        max_distance: int. Number of distances that have a vector, from 0 on.

    Call arguments and returns:
        As the base class `DistanceScore`: from (B, N, T, H) and (B, N, S, H) to (B, N, T, S).

    Raises:
        ValueError: if `max_distance` < 1.

    Example:
        >>> from keras_attn import layers, patterns, scores
        >>> score, pattern = scores.LearnedRelative(256), patterns.Local(256)
        >>> layer = layers.MultiHeadAttention(2, 8, score=score, pattern=pattern)

    Differs from the paper: each layer has its own p, which the paper shares between all layers.

    Reference: [Sukhbaatar et al., 2019](https://arxiv.org/abs/1905.07799), section 2; vectors of
        distances: [Shaw et al., 2018](https://arxiv.org/abs/1803.02155), section 3.1.
    """

    weight_axes = {"embeddings": ()}

    def __init__(self, max_distance, **kwargs):
        super().__init__(**kwargs)
        check_sizes(max_distance=max_distance)
        self.max_distance = max_distance

    def build(self, query_shape, key_shape=None):
        normal = keras.initializers.RandomNormal(stddev=1.0)
        shape = (self.max_distance, query_shape[-1])
        self.embeddings = self.add_weight(shape, normal, name="embeddings")

    def queries(self, query):
        query = query * ops.cast(1 / math.sqrt(query.shape[-1]), query.dtype)
        return query, query

    def distance_table(self, distances):
        """Return p of all `distances`, for `distance_products`."""
        columns = self._rows(table_columns(distances))
        table = pad(ops.cast(self.embeddings, self.compute_dtype), 0, 1, axis=0)
        return ops.transpose(ops.take(table, columns, axis=0))

    def irregular_products(self, length, num_keys, head_dim):
        return length * head_dim * self.max_distance

    def _rows(self, distances):
        """Return the rows of p for distances; `max_distance` for those without a row."""
        inside = ops.logical_and(distances >= 0, distances < self.max_distance)
        return ops.where(inside, distances, self.max_distance)

    def products(self, query, i, j):
        rows = self._rows(ops.expand_dims(i, -1) - ops.expand_dims(j, -2))
        products = ops.matmul(query, ops.transpose(self.embeddings))
        products = pad(products, 0, 1, axis=3)  # (B, N, T, max_distance + 1)
        shape = (*sizes(products)[:3], size(rows, 3))
        return ops.take_along_axis(products, ops.broadcast_to(rows, shape), axis=3)
