"""Attention by the difference of two attention maps."""

import math

import keras
from keras import ops

from keras_attn import registry
from keras_attn.attention.softmax import at_least_float32
from keras_attn.layers.multi_head_attention import MultiHeadAttention
from keras_attn.ops.checks import check_numbers, check_sizes, check_that


@registry.register
class DifferentialAttention(MultiHeadAttention):
    """Attention by the difference of two attention maps over the same values.

        head = (1 - c) RMSNorm((A_1 - lambda A_2) V),   A = softmax(score(Q, K))

        lambda = exp(a_1 . b_1) - exp(a_2 . b_2) + c,   c = 0.8 - 0.6 exp(-0.3 layer_index)

    Heads n and N/2 + n are a pair, whose values are of size 2 H; a_1, b_1, a_2, b_2 (H,) are
    learned, one of each for all pairs. Weights that both maps give to irrelevant keys cancel. The
    norm has no weights; it and the difference are at least float32. It takes any score, pattern and
    cache. Cost: that of `MultiHeadAttention` with as many heads and `value_dim` 2 H; the
    projections are those of `value_dim` H.

    Use it for long contexts of which little matters, in place of `MultiHeadAttention`.

    Args:
        As `MultiHeadAttention`, without `value_dim`, and:
        num_heads: int. Even number N of heads of queries and keys; the paper counts the pairs.
        key_dim: int. Size H of each head's queries and keys.
        layer_index: int. Number of the layer in its stack, from 0 on.
        num_key_value_heads: int. Heads of keys, an even number, of whose values there are half as
            many; by default N.
        epsilon: float. Added to the mean square by the norm.

    Call arguments:
        As `MultiHeadAttention`.

    Returns:
        As `MultiHeadAttention`. Scores (B, N, T, S) are the maps A_1, then the maps A_2.

    Raises:
        ValueError: if `num_heads` or `num_key_value_heads` is odd, or `layer_index` is below 0.

    Example:
        >>> import keras, keras_attn
        >>> layer = keras_attn.layers.DifferentialAttention(4, 8, layer_index=0, pattern="causal")
        >>> layer(keras.ops.ones((3, 5, 16)), keras.ops.ones((3, 5, 16))).shape
        TensorShape([3, 5, 16])

    Differs from the paper: the norm has no gain; caches keep each value twice.

    Reference: [Ye et al., 2024](https://arxiv.org/abs/2410.05258), section 2.1, eq. 1 to 3.
    """

    decided_arguments = ("value_dim", "shares_query")
    heads_per_value = 2
    weight_axes = {**MultiHeadAttention.weight_axes, "scale_query": (), "scale_key": ()}

    def __init__(self, num_heads, key_dim, layer_index, *, epsilon=1e-5, **kwargs):
        check_sizes(0, layer_index=layer_index)
        check_numbers(0, epsilon=epsilon)
        super().__init__(num_heads, key_dim, 2 * key_dim, **kwargs)
        for name in ("num_heads", "num_key_value_heads"):
            check_that(
                getattr(self, name) % 2 == 0, "an even number", **{name: getattr(self, name)}
            )
        self.layer_index = layer_index
        self.epsilon = epsilon
        self.scale_at_start = 0.8 - 0.6 * math.exp(-0.3 * layer_index)

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        normal = keras.initializers.RandomNormal(stddev=0.1)
        self.scale_vectors = [
            self.add_weight((self.key_dim,), normal, name=name, autocast=False)
            for name in ("scale_query_1", "scale_key_1", "scale_query_2", "scale_key_2")
        ]

    def project(self, x, *names):
        """Project x (B, T, D) to heads (B, N, T, H); those of values are there twice."""
        heads = super().project(x, *names)
        return [
            ops.concatenate([y, y], axis=1) if name == "value" else y
            for name, y in zip(names, heads, strict=True)
        ]

    def scale(self):
        """Return lambda, the factor of the second maps."""
        a_1, b_1, a_2, b_2 = self.scale_vectors
        return ops.exp(ops.sum(a_1 * b_1)) - ops.exp(ops.sum(a_2 * b_2)) + self.scale_at_start

    def combine_heads(self, heads):
        """Return the normalised differences (B, N / 2, T, 2 H) of the heads of each pair."""
        first, second = ops.split(at_least_float32(heads), 2, axis=1)
        head = first - ops.cast(self.scale(), first.dtype) * second  # (B, N / 2, T, 2 H)
        head = ops.rms_normalization(head, axis=-1, epsilon=self.epsilon)
        head = (1 - self.scale_at_start) * head
        return ops.cast(head, heads.dtype)
