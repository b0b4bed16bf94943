"""Scores that are logarithms of products of features: attention in linear time."""

from keras import ops

from keras_attn.attention.softmax import at_least_float32, query_keys
from keras_attn.ops.checks import check_choice
from keras_attn.registry import register
from keras_attn.scores.score import Score

# Keeps features above zero, and the products of two above the smallest float32.
LEAST_FEATURE = 1e-15


class KernelScore(Score):
    """Base class of scores whose weights are products of features of a query and a key.

        logit(q, k) = log(phi(q) . phi(k)),   so softmax(logits)_j = phi(q) . phi(k_j) / sum

    Sums over the keys of phi(k) v^T then serve all queries: a layer computes `Dense` and `Causal`
    attention in linear time, and `KVCache` keeps the sums in place of keys. Other patterns, sums
    with other scores and dropout in training use the logits. A subclass defines `count_features`,
    `query_features` and `key_features`.

    Call arguments and returns:
        As `Score`: from (B, N, T, H) and (B, N, S, H) to (B, N, T, S), at least float32.
    """

    is_linear = True

    def count_features(self, head_dim):
        """Return the number M of features of a head of size H."""
        raise NotImplementedError(f"{type(self).__name__} must define `count_features`.")

    def query_features(self, query):
        """Return features (B, N, T, M), above 0, at least float32, up to a factor per query."""
        raise NotImplementedError(f"{type(self).__name__} must define `query_features`.")

    def key_features(self, key):
        """Return features (B, N, S, M), above 0, at least float32, up to a factor of all keys."""
        raise NotImplementedError(f"{type(self).__name__} must define `key_features`.")

    def products_of_features(self, length, head_dim):
        """Return the multiply-adds of the features of `length` queries or keys of one head."""
        return 0

    def products_of_tile(self, length, num_keys, head_dim, has_table):
        features = self.products_of_features(length + num_keys, head_dim)
        return features + length * num_keys * self.count_features(head_dim)

    def logits(self, query, key):
        """Return the logarithms (B, N, T, S) of the products of features."""
        return ops.log(query_keys(self.query_features(query), self.key_features(key)))


@register
class Kernel(KernelScore):
    """Linear attention: the weight of a key is a product of simple features.

        logit(q, k) = log(phi(q) . phi(k)),   phi(x) = elu(x) + 1     (or relu(x) + 0.001)

    Under `Dense` and `Causal`, time O(T H Hv) and memory O(T H) per head; a decoding step with a
    `KVCache` takes O(H Hv) in time and memory, after any number of keys. Under other patterns, with
    dropout in training, and where scores are returned, the cost is that of a dot product. Features
    and their sums are float32 under any dtype policy. A subclass with another `feature_map`, whose
    values must be above 0, has a kernel of its own.

    Use it for very long sequences and streams, where less sharp attention suffices.

    Args:
        features: "elu" or "relu".

    Raises:
        ValueError: if `features` is another name.

    Example:
        >>> from keras_attn import layers, scores
        >>> layer = layers.MultiHeadAttention(8, 64, score=scores.Kernel(), pattern="causal")

    Differs from the paper: features are at least 1e-15, so that no sum of weights is zero.

    Reference: [Katharopoulos et al., 2020](https://arxiv.org/abs/2006.16236), sections 3.2 and 3.4;
        relu: [Choromanski et al., 2021](https://arxiv.org/abs/2009.14794), section 4.
    """

    def __init__(self, features="elu"):
        check_choice(("elu", "relu"), features=features)
        self.features = features

    def feature_map(self, x):
        """Return the features (..., M) of vectors (..., H), all above 0."""
        if self.features == "relu":
            return ops.relu(x) + 1e-3
        # Not elu(x) + 1, which rounds small features to a multiple of 1e-7.
        return ops.where(x > 0, x + 1, ops.exp(ops.minimum(x, 0)))

    def count_features(self, head_dim):
        return self.feature_map(ops.zeros((1, head_dim))).shape[-1]

    def query_features(self, query):
        return ops.maximum(self.feature_map(at_least_float32(query)), LEAST_FEATURE)

    def key_features(self, key):
        return self.query_features(key)

    def __call__(self, query, key, query_positions=None, key_positions=None):
        return self.logits(query, key)
