"""Softmax attention in linear time, estimated by random features."""

import math

import keras
from keras import ops

from keras_attn.attention.softmax import at_least_float32
from keras_attn.ops.checks import check_sizes
from keras_attn.ops.shapes import ceil_div
from keras_attn.registry import register
from keras_attn.scores.kernel import KernelScore
from keras_attn.scores.score import ScoreLayer

# Logarithm of the largest feature of a key: sums of many products with it stay in float32.
LARGEST = 60.0
# Least feature of a key, so that no sum of products is zero.
LEAST = 1e-30


def orthogonal_features(count, size, seed=None):
    """Draw `count` vectors of `size` components, float32, orthogonal in groups of `size`.

    Each is distributed as a vector of standard normal numbers.
    """
    groups = ceil_div(count, size)
    normal = keras.initializers.RandomNormal(stddev=1.0, seed=seed)
    numbers = normal((2 * groups, size, size), dtype="float32")
    basis, triangle = ops.qr(numbers[:groups])
    # The signs make the basis uniform: without them estimates are off by several percent.
    basis = basis * ops.expand_dims(ops.sign(ops.diagonal(triangle, axis1=1, axis2=2)), 1)
    lengths = ops.sqrt(ops.sum(ops.square(numbers[groups:]), axis=-1, keepdims=True))
    return ops.reshape(basis * lengths, (-1, size))[:count]


@register
class OrthogonalFeatures(keras.initializers.Initializer):
    """Initialize a weight (count, size) by `orthogonal_features`.

    A class, not a function: under a distribution Keras compiles `__call__` of large weights' one.
    """

    def __init__(self, seed=None):
        self.seed = seed

    def __call__(self, shape, dtype=None):
        return ops.cast(orthogonal_features(*shape, seed=self.seed), dtype)

    def get_config(self):
        return {"seed": self.seed}


@register
class FAVOR(KernelScore, ScoreLayer):
    """Scaled dot product, estimated by positive orthogonal random features, as in Performers.

        logit(q, k) = log(phi(q) . phi(k)),   E[phi(q) . phi(k)] = exp(q . k / sqrt(H))

        phi(x)_r = exp(w_r . x / H^(1/4) - ||x||^2 / (2 sqrt(H))) / sqrt(M)

    Under `Dense` and `Causal`, time O(T M (H + Hv)) and memory O(T M) per head; a decoding step
    with a `KVCache` takes O(M Hv) in time and memory, after any number of keys. Other patterns take
    the logits, as with `Kernel`. The w_r (M, H) are shared by all heads, saved with the layer and
    not trained. The relative error of one weight is a third for M = 64 and H = 16, and larger for
    longer vectors.

    Use it for very long sequences where attention must resemble that of a dot product.

    Args:
        num_features: int. Number M of features; by default H ln(H).
        seed: int. Seed of the w_r; by default new ones for each layer.

    Call arguments and returns:
        As `Score`: from (B, N, T, H) and (B, N, S, H) to (B, N, T, S), float32.

    Raises:
        ValueError: if `num_features` < 1.

    Example:
        >>> from keras_attn import layers, scores
        >>> score = scores.FAVOR(num_features=256)
        >>> layer = layers.MultiHeadAttention(8, 64, score=score, pattern="causal")

    Differs from the paper: features of keys are divided by a bound that depends on the w_r alone,
        not by the greatest of all positions, which would depend on later ones; nothing is added to
        them. New w_r are drawn by `redraw` only, not at regular steps of training.

    Reference: [Choromanski et al., 2021](https://arxiv.org/abs/2009.14794), section 2.3, lemma 1,
        and section 2.4.
    """

    weight_axes = {"projection": ()}

    def __init__(self, num_features=None, seed=None, **kwargs):
        super().__init__(**kwargs)
        if num_features is not None:
            check_sizes(num_features=num_features)
        self.num_features = num_features
        self.seed = seed

    def count_features(self, head_dim):
        return self.num_features or max(1, round(head_dim * math.log(head_dim)))

    def products_of_features(self, length, head_dim):
        return length * head_dim * self.count_features(head_dim)

    def products_of_tile(self, length, num_keys, head_dim, has_table):
        # `call` needs the greatest exponent of each query too.
        again = self.products_of_features(length, head_dim)
        return super().products_of_tile(length, num_keys, head_dim, has_table) + again

    def build(self, query_shape, key_shape=None):
        shape = self.count_features(query_shape[-1]), query_shape[-1]
        self.projection = self.add_weight(
            shape,
            OrthogonalFeatures(self.seed),
            name="projection",
            trainable=False,
            autocast=False,
        )

    def redraw(self, seed=None):
        """Draw new w_r, which makes caches of sums invalid: for a callback between steps."""
        self.projection.assign(orthogonal_features(*self.projection.shape, seed=seed))

    def query_features(self, query):
        exponents, greatest = self._exponents(query)
        return ops.exp(exponents - greatest)

    def key_features(self, key):
        exponents, _ = self._exponents(key)
        return ops.maximum(ops.exp(exponents - self._bound()), LEAST)

    def call(self, query, key, query_positions=None, key_positions=None):
        _, greatest = self._exponents(query)
        scale = self._bound() + greatest - math.log(self.projection.shape[0])
        return self.logits(query, key) + scale

    def _exponents(self, x):
        """Return the exponents (B, N, T, M) of the features, and the greatest of each vector."""
        x = at_least_float32(x)
        x = x * ops.cast(x.shape[-1] ** -0.25, x.dtype)
        projection = ops.cast(ops.transpose(self.projection), x.dtype)
        squares = ops.sum(ops.square(x), axis=-1, keepdims=True)
        exponents = ops.matmul(x, projection) - squares / 2
        # With an initial value Keras takes tensors without a position.
        greatest = ops.max(exponents, axis=-1, keepdims=True, initial=-float("inf"))
        return exponents, ops.stop_gradient(greatest)

    def _bound(self):
        """Return a number b that bounds the features of any key by exp(`LARGEST` + b)."""
        # An exponent is |w|^2 / 2 - |x - w|^2 / 2.
        return ops.max(ops.sum(ops.square(self.projection), axis=-1)) / 2 - LARGEST
