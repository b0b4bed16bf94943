"""The score of queries that are their own keys."""

import math

from keras import ops

from keras_attn.attention.softmax import directions, query_keys
from keras_attn.registry import register
from keras_attn.scores.score import Score


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
        return query_keys(query, directions(key))
