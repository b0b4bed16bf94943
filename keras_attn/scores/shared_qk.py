"""The score of queries that are their own keys."""

import math

from keras import ops

from keras_attn.attention.softmax import at_least_float32, query_keys
from keras_attn.registry import register
from keras_attn.scores.score import Score

# Keys of at most this squared length have no direction.
SHORTEST = 1e-30


@register
class SharedQK(Score):
    """Score of a query and the direction of a key, where one projection makes both.

        logit(q, k) = q . k / (||k|| sqrt(H)),   k = q of the same position

    A query and a key that hash alike then also score high, which is what the pattern `LSH` needs.
    A layer with this score projects queries and keys by the query's kernel and has no other for
    keys. The key of length 1 that is most like a query is its own, so without `LSH`, which leaves
    it out, a query mostly attends to itself. A key of zeros scores 0. The keys' lengths are
    float32 under any dtype policy. Time O(T S H), memory O(T S) per head.

    Use it for `LSH`, which needs queries and keys in the same space.

    Example:
        >>> import keras_attn
        >>> keras_attn.layers.MultiHeadAttention(8, 64, score="shared_qk").score
        SharedQK()

    Differs from the paper: none.

    Reference: [Kitaev et al., 2020](https://arxiv.org/abs/2001.04451), section 2, "Sharing QK".
    """

    shares_query = True

    def __call__(self, query, key, query_positions=None, key_positions=None):
        query = query * ops.cast(1 / math.sqrt(query.shape[-1]), query.dtype)
        # The direction of a key of zeros is zeros, without a gradient.
        x = at_least_float32(key)
        squares = ops.sum(ops.square(x), axis=-1, keepdims=True)
        some = squares > SHORTEST
        inverse = ops.where(some, ops.rsqrt(ops.where(some, squares, 1.0)), 0.0)
        return query_keys(query, ops.cast(x * inverse, key.dtype))
