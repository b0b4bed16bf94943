"""Terms of positions that are added to a score."""

import math

import keras
import numpy as np
from keras import ops

from keras_attn.ops.checks import check_shape, check_sizes
from keras_attn.registry import register
from keras_attn.scores.score import ScoreLayer


class Bias(ScoreLayer):
    """Base class of terms that are added to the logits of a score: `DotProduct() + ALiBi()`.

    A bias of one's own overrides `of_distances`, or `of_pairs` if it needs both positions. A
    subclass of another bias that overrides one of them does not inherit the other. Weights are
    created in `build(query_shape, key_shape)`, from shapes (B, N, T, H) and (B, N, S, H); they get
    their gradients in every plan.

    Call arguments and returns:
        As `Score`, but a bias is no score by itself: calling it raises a `ValueError`. As a term it
        gives (B, N, T, S).

    Example:
        >>> import keras, keras_attn
        >>> class Recency(keras_attn.scores.Bias):
        ...     def build(self, query_shape, key_shape):
        ...         self.slopes = self.add_weight((query_shape[1], 1), "zeros", name="slopes")
        ...     def of_distances(self, distances):
        ...         return self.slopes * keras.ops.cast(distances, "float32")
        >>> score = keras_attn.scores.DotProduct() + Recency()
        >>> layer = keras_attn.layers.MultiHeadAttention(2, 8, score=score, pattern="causal")
        >>> layer(keras.ops.ones((3, 5, 16)), keras.ops.ones((3, 5, 16))).shape
        TensorShape([3, 5, 16])
    """

    uses_positions = True

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        own = {"of_distances", "of_pairs"} & cls.__dict__.keys()
        if len(own) == 1:  # the other one would be that of another bias
            for name in {"of_distances", "of_pairs", "is_relative"} - cls.__dict__.keys():
                setattr(cls, name, Bias.__dict__[name])

    def of_distances(self, distances):
        """Return (N, L) for distances i - j, int32 (L,), of a query at i and a key at j."""
        raise NotImplementedError(
            f"{type(self).__name__} must define `of_distances` or `of_pairs`."
        )

    def of_pairs(self, i, j):
        """Return (B, N, T, S) for positions that broadcast, as those of a pattern's `mask_mod`.

        Args:
            i: int32 (B or 1, N or 1, T, 1), positions of queries.
            j: int32 (B or 1, N or 1, 1, S), positions of keys.
        """
        distances = i - j
        shape = ops.shape(distances)
        flat = self.distance_vector(ops.reshape(distances, (-1,)))
        by_head = ops.reshape(flat, (ops.shape(flat)[0], *shape))  # (N, B, N or 1, T, S)
        if distances.shape[1] == 1:
            return ops.swapaxes(by_head[:, :, 0], 0, 1)
        return ops.stack([by_head[n, :, n] for n in range(by_head.shape[0])], axis=1)

    def distance_vector(self, distances):
        """Return `of_distances`, refused unless there is a number for each of the distances."""
        vector = self.of_distances(distances)
        check_shape(vector, f"{type(self).__name__}.of_distances", (None, distances.shape[0]))
        return vector

    @property
    def is_relative(self):
        return type(self).of_pairs is Bias.of_pairs

    @property
    def is_of_distances(self):
        """True if one vector of all distances serves every pair of positions."""
        return type(self).of_distances is not Bias.of_distances

    def call(self, query, key, query_positions=None, key_positions=None):
        raise ValueError(f"A bias is added to a score: DotProduct() + {self!r}.")


@register
class ALiBi(Bias):
    """Bias that falls linearly with the distance, each head with a slope of its own.

        bias_n(i, j) = -m_n |i - j|,   m_n = 2^(-8 n / N),   n = 1 .. N

    If N is no power of two, the slopes are those of the power P below it, and then every other one
    of 2 P. There are no weights. Time and memory O(T S) per head.

    Use it for texts longer than those of training, without other positions.

    Call arguments and returns:
        As `Bias`: a term of a sum, which is not called by itself.

    Example:
        >>> from keras_attn import layers, scores
        >>> score = scores.DotProduct() + scores.ALiBi()
        >>> layer = layers.MultiHeadAttention(8, 64, score=score, pattern="causal")

    Differs from the paper: keys after the query, in attention that is not causal, have a distance
        too.

    Reference: [Press et al., 2022](https://arxiv.org/abs/2108.12409), section 3.
    """

    is_relative = True

    def build(self, query_shape, key_shape=None):
        num_heads = query_shape[1]
        below = 2 ** int(math.log2(num_heads))
        slopes = [2.0 ** (-8 * n / below) for n in range(1, below + 1)]
        others = [2.0 ** (-4 * (2 * n + 1) / below) for n in range(num_heads - below)]
        self.slopes = np.array([*slopes, *others], "float32")

    def of_pairs(self, i, j):
        # Positions are subtracted as integers: float32 cannot tell distant neighbours apart.
        distances = ops.cast(ops.abs(i - j), "float32")
        return ops.multiply(distances, -ops.expand_dims(self.slopes, (1, 2)))


@register
class T5Bias(Bias):
    """Learned bias of the distance's bucket, each head with a table of its own.

        bias_n(i, j) = b[bucket(i - j), n]

    Half of the buckets hold one distance each; the ranges of the others grow with the distance, and
    the last one also holds all beyond `max_distance`. Without `bidirectional`, keys after the query
    share the bucket of the query's own position; with it, half of the buckets are for them. Time
    and memory O(T S) per head, and O(T + S) for the buckets where positions follow each other.

    Use it for encoders and decoders like T5's, with `DotProduct(scaled=False)`.

    Args:
        num_buckets: int. Number of buckets.
        max_distance: int. All distances from this one on share a bucket.
        bidirectional: bool. If True, as in encoders, keys after the query have their own buckets.

    Call arguments and returns:
        As `Bias`: a term of a sum, which is not called by itself.

    Raises:
        ValueError: if `num_buckets` < 2, or 4 with `bidirectional`, or `max_distance` is not larger
            than the number of buckets with one distance.

    Example:
        >>> from keras_attn import layers, scores
        >>> score = scores.DotProduct(scaled=False) + scores.T5Bias(bidirectional=True)
        >>> layer = layers.MultiHeadAttention(8, 64, score=score)

    Differs from the paper: each layer has its own table, which the paper shares between layers. Its
        initial deviation is (N H)^-1/2, where the authors' code has D^-1/2.

    Reference: [Raffel et al., 2020](https://arxiv.org/abs/1910.10683), section 2.1.
    """

    is_relative = True
    weight_axes = {"table": (None, "model")}

    def __init__(self, num_buckets=32, max_distance=128, bidirectional=False, **kwargs):
        super().__init__(**kwargs)
        check_sizes(4 if bidirectional else 2, num_buckets=num_buckets)
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.bidirectional = bool(bidirectional)
        check_sizes(self._exact + 1, max_distance=max_distance)

    @property
    def _exact(self):
        """The number of distances with a bucket of their own, on one side."""
        return self.num_buckets // (4 if self.bidirectional else 2)

    def build(self, query_shape, key_shape=None):
        _, num_heads, _, head_dim = query_shape
        normal = keras.initializers.RandomNormal(stddev=(num_heads * head_dim) ** -0.5)
        shape = (self.num_buckets, num_heads)
        self.table = self.add_weight(shape, normal, name="table", autocast=False)

    def buckets(self, distances):
        """Return the bucket of each distance i - j, int32 of any shape."""
        side = self.num_buckets // 2 if self.bidirectional else self.num_buckets
        exact = self._exact
        # The least distance of each bucket that has several, in exact arithmetic: no logarithm at
        # run time, whose rounding would decide.
        powers = (np.arange(1, side - exact) / (side - exact)).tolist()
        edges = [exact * (self.max_distance / exact) ** power for power in powers]
        edges = [round(x) if abs(x - round(x)) < 1e-9 else math.ceil(x) for x in edges]
        far = ops.abs(distances) if self.bidirectional else ops.maximum(distances, 0)
        bucket = ops.minimum(far, exact)
        for edge in edges:
            bucket = bucket + ops.cast(far >= edge, "int32")
        if self.bidirectional:
            bucket = bucket + side * ops.cast(distances < 0, "int32")
        return bucket

    def of_distances(self, distances):
        return self._of_each_head(ops.expand_dims(distances, 0), (-1, 1))

    def of_pairs(self, i, j):
        return self._of_each_head(i - j, (-1, 1, 1))

    def _of_each_head(self, distances, head_shape):
        """Return the bias of distances, to which heads of shape `head_shape` are broadcast."""
        num_heads = self.table.shape[1]
        head = ops.reshape(ops.arange(num_heads, dtype="int32"), head_shape)
        return ops.take(ops.reshape(self.table, (-1,)), self.buckets(distances) * num_heads + head)
