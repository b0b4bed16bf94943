"""Scores of keys and of their distances."""

import math

import keras
from keras import ops

from keras_attn.attention.inputs import (
    PositionRange,
    default_positions,
    distances_between,
    positions_by_head,
)
from keras_attn.attention.relative_shift import distance_products, table_columns
from keras_attn.attention.softmax import at_least_float32, query_keys
from keras_attn.backend.loop_invariants import in_loop_invariants, loop_invariant
from keras_attn.ops.checks import check_sizes
from keras_attn.ops.shapes import size
from keras_attn.ops.sinusoids import sinusoids
from keras_attn.registry import MatrixInitializer, register
from keras_attn.scores.score import ScoreLayer


@register
class Relative(ScoreLayer):
    """Score of a query with a key's content and with its distance, as in Transformer-XL.

        logit(i, j) = ((q_i + u) . k_j + (q_i + v) . r_{i-j}) / sqrt(H),   r_d = PE(d) W_r

    u and v (N, H) stand for the query where its content does not matter, W_r (D, N, H) turns the
    sines and then the cosines PE of a distance into a key of its own. Only differences of positions
    count, so a memory or a cache may stand before the keys, and in attention that is not causal
    distances below zero have their own sinusoids. Without other positions in the model, give the
    attention `use_bias=False` as the paper does.

    Where positions follow each other, r is computed once for each of the T + S - 1 distances and
    shifted into place: time O(T (T + S) H) and memory O(T (T + S)) per head, beside
    O((T + S) D H) for r. Positions in any order take O(T S D). The sinusoids are float32 under any
    dtype policy. A loop that decodes computes r once.

    Args:
        hidden_dim: int. Number D of sines and cosines; by default N H.
        clamp_length: int. Keys further away count as being at this distance, on either side; None
            for none. A model that has seen short sequences is evaluated with long memories so.

    Call arguments:
        query: (B, N, T, H). key: (B, N, S, H).
        query_positions, key_positions: `PositionRange`s or int (T,), (B, T) or (B, N, T); by default
            the queries are the last T of S positions.
        table: the `distance_table` of `distances`; computed if it is None.

    Returns:
        (B, N, T, S).

    Raises:
        ValueError: if `hidden_dim` or `clamp_length` is below 1.

    Example:
        >>> import keras_attn
        >>> layer = keras_attn.layers.MultiHeadAttention(
        ...     2, 8, score="relative", pattern="causal", use_bias=False)

    Differs from the paper: each layer has its own u and v (the authors' `untie_r`, as in their
        large models); no dropout on r; distances below zero, which a causal model does not meet.

    Reference: [Dai et al., 2019](https://arxiv.org/abs/1901.02860), section 3.3 and appendix B.
    """

    uses_positions = True

    def __init__(self, hidden_dim=None, clamp_length=None, **kwargs):
        super().__init__(**kwargs)
        for name, value in (("hidden_dim", hidden_dim), ("clamp_length", clamp_length)):
            if value is not None:
                check_sizes(**{name: value})
        self.hidden_dim = hidden_dim
        self.clamp_length = clamp_length

    def build(self, query_shape, key_shape=None):
        _, num_heads, _, head_dim = query_shape
        hidden_dim = self.hidden_dim or num_heads * head_dim

        as_matrix = MatrixInitializer("glorot_uniform", (hidden_dim, num_heads * head_dim))
        for name in ("u", "v"):
            near_zero = keras.initializers.RandomNormal(stddev=0.02)
            setattr(self, name, self.add_weight((num_heads, head_dim), near_zero, name=name))
        self.kernel = self.add_weight((hidden_dim, num_heads, head_dim), as_matrix, name="kernel")

    def call(
        self, query, key, query_positions=None, key_positions=None, table=None, distances=None
    ):
        queries, keys = default_positions(size(query, 2), size(key, 2))
        query_positions = queries if query_positions is None else query_positions
        key_positions = keys if key_positions is None else key_positions
        scale = ops.cast(1 / math.sqrt(query.shape[-1]), query.dtype)
        by_content, by_distance = ((query + w[:, None]) * scale for w in (self.u, self.v))
        needed = distances_between(query_positions, key_positions)
        if needed is None:
            products = self._by_angles(by_distance, query_positions, key_positions)
        else:
            if table is None:
                table, distances = self._table_of_call(needed, query_positions, keys.length)
            products = distance_products(by_distance, table, distances, needed)
        logits = query_keys(by_content, key)
        return logits + ops.cast(products, logits.dtype)

    def distance_table(self, distances):
        """Return r of all `distances`, for `distance_products`."""
        columns = table_columns(distances)
        if self.clamp_length is not None:
            columns = ops.clip(columns, -self.clamp_length, self.clamp_length)
        table = ops.cast(self._sinusoids(columns), self.compute_dtype)
        return ops.einsum("dnh,wd->nhw", ops.cast(self.kernel, table.dtype), table)

    def _sinusoids(self, positions):
        return sinusoids(positions, self.kernel.shape[0], "concat", dtype=self.compute_dtype)

    def _table_of_call(self, needed, query_positions, num_keys):
        """Return a table with the needed distances, and all distances it has."""
        in_loop = in_loop_invariants() and not isinstance(query_positions.start, int)
        if not in_loop or not isinstance(num_keys, int):
            return self.distance_table(needed), needed
        # A loop over a cache: the next step has a query at another position.
        distances = PositionRange((1 - num_keys) * needed.step, 2 * num_keys - 1, needed.step)
        table = loop_invariant(
            self, ("distances", num_keys), lambda: self.distance_table(distances)
        )
        return table, distances

    def _by_angles(self, query, query_positions, key_positions):
        """Compute products (B, N, T, S) with r for positions in any order.

        Sine and cosine of a difference are sums of products of those of the two positions, so no
        pair needs a row of its own.
        """
        i, j = positions_by_head(query_positions), positions_by_head(key_positions)
        waves = at_least_float32(ops.einsum("bnth,dnh->bntd", query, self.kernel))
        half = waves.shape[-1] // 2
        sines, cosines = waves[..., :half], waves[..., half : 2 * half]
        here, there = (self._sinusoids(x)[..., : 2 * half] for x in (i, j))
        sin, cos = here[..., :half], here[..., half:]
        turned = [cosines * sin - sines * cos, sines * sin + cosines * cos]
        turned = ops.concatenate(turned, axis=-1)
        products = ops.matmul(turned, ops.swapaxes(there, -1, -2))  # (B, N, T, S)
        if self.clamp_length is not None:
            farthest = ops.convert_to_tensor([-self.clamp_length, self.clamp_length], "int32")
            ends = ops.matmul(waves, ops.transpose(self._sinusoids(farthest)))
            distance = i[..., :, None] - j[..., None, :]
            products = ops.where(distance < -self.clamp_length, ends[..., :1], products)
            products = ops.where(distance > self.clamp_length, ends[..., 1:], products)
        return ops.cast(products, query.dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "clamp_length": self.clamp_length,
        }
