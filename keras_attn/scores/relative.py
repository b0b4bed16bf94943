"""Scores of keys and of their distances."""

import math

import keras
from keras import ops

from keras_attn.attention.inputs import PositionRange
from keras_attn.attention.relative_shift import table_columns
from keras_attn.attention.softmax import at_least_float32
from keras_attn.backend.loop_invariants import in_loop_invariants, loop_invariant
from keras_attn.initializers import MatrixInitializer
from keras_attn.ops.checks import check_sizes
from keras_attn.ops.sinusoids import sinusoids
from keras_attn.registry import register
from keras_attn.scores.distance_score import DistanceScore


@register
class Relative(DistanceScore):
    """Score of a query with a key's content and with its distance, as in Transformer-XL.

        logit(i, j) = ((q_i + u) . k_j + (q_i + v) . r_{i-j}) / sqrt(H),   r_d = PE(d) W_r

    u and v (N, H) stand for the query where its content does not matter, W_r (D, N, H) turns the
    sines and then the cosines PE of a distance into a key of its own. Only differences of positions
    count, so a memory or a cache may precede the keys; distances below zero, in attention that is
    not causal, have their own sinusoids. Without other positions in the model, give the attention
    `use_bias=False` as the paper does.

    Where positions follow each other, time is O(T (T + S) H) and memory O(T (T + S)) per head,
    beside O((T + S) D H) for r, which a loop that decodes computes once. Positions in any order
    take O(T S D). The sinusoids are float32 under any dtype policy.

    Use it for models with a segment memory, and texts longer than those of training.

    Args:
        hidden_dim: int. Number D of sines and cosines; by default N H.
        clamp_length: int. Keys further away count as being at this distance, on either side, for
            long memories after training on short ones; None for no limit.

    Call arguments and returns:
        As the base class `DistanceScore`: from (B, N, T, H) and (B, N, S, H) to (B, N, T, S).

    Raises:
        ValueError: if `hidden_dim` or `clamp_length` is below 1.

    Example:
        >>> from keras_attn.layers import MultiHeadAttention
        >>> layer = MultiHeadAttention(2, 8, score="relative", pattern="causal", use_bias=False)

    Differs from the paper: each layer has its own u and v (the authors' `untie_r`, as in their
        large models); no dropout on r; distances below zero, which a causal model does not have.

    Reference: [Dai et al., 2019](https://arxiv.org/abs/1901.02860), section 3.3 and appendix B.
    """

    weight_axes = {"u": ("model",), "v": ("model",), "kernel": (None, "model")}

    def __init__(self, hidden_dim=None, clamp_length=None, **kwargs):
        super().__init__(**kwargs)
        given = {"hidden_dim": hidden_dim, "clamp_length": clamp_length}
        check_sizes(**{name: value for name, value in given.items() if value is not None})
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

    def queries(self, query):
        scale = ops.cast(1 / math.sqrt(query.shape[-1]), query.dtype)
        return tuple((query + ops.expand_dims(w, 1)) * scale for w in (self.u, self.v))

    def distance_table(self, distances):
        """Return r of all `distances`, for `distance_products`."""
        columns = table_columns(distances)
        if self.clamp_length is not None:
            columns = ops.clip(columns, -self.clamp_length, self.clamp_length)
        table = ops.cast(self._sinusoids(columns), self.compute_dtype)
        return ops.einsum("dnh,wd->nhw", ops.cast(self.kernel, table.dtype), table)

    def products_of_table(self, num_distances, num_heads, head_dim):
        return (self.hidden_dim or num_heads * head_dim) * num_heads * head_dim * num_distances

    def irregular_products(self, length, num_keys, head_dim):
        width = self.kernel.shape[0]
        return length * head_dim * width + length * num_keys * (width // 2 * 2)

    def _sinusoids(self, positions):
        return sinusoids(positions, self.kernel.shape[0], "concat", dtype=self.compute_dtype)

    def table_of_call(self, needed, query_positions, num_keys):
        in_loop = in_loop_invariants() and not isinstance(query_positions.start, int)
        if not in_loop or not isinstance(num_keys, int):
            return super().table_of_call(needed, query_positions, num_keys)
        # A loop over a cache: the next step has a query at another position.
        distances = PositionRange((1 - num_keys) * needed.step, 2 * num_keys - 1, needed.step)
        name = "distances", num_keys
        return loop_invariant(self, name, lambda: self.distance_table(distances)), distances

    def products(self, query, i, j):
        # Sine and cosine of a difference are sums of products of those of the two positions, so no
        # pair needs a row of its own.
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
            distance = ops.expand_dims(i, -1) - ops.expand_dims(j, -2)
            products = ops.where(distance < -self.clamp_length, ends[..., :1], products)
            products = ops.where(distance > self.clamp_length, ends[..., 1:], products)
        return ops.cast(products, query.dtype)
