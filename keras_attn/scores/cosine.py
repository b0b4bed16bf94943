"""Scores by the angle of queries and keys."""

import math

import keras
from keras import ops

from keras_attn.attention.softmax import at_least_float32, directions, query_keys
from keras_attn.ops.checks import check_numbers
from keras_attn.registry import register
from keras_attn.scores.score import ScoreLayer


@register
class Cosine(ScoreLayer):
    """Score of a query and a key by the cosine of their angle, times a learned scale.

        logit_n(q, k) = min(exp(t_n), max_scale) q . k / (||q|| ||k||)

    t_n is learned, one number for each head; exp(t_n) is the inverse of a temperature. Logits are
    at most `max_scale`, however long the vectors are. Lengths and scales are float32 under any
    dtype policy; a vector of zeros scores 0. Time O(T S H), memory O(T S) per head.

    Use it for deep or wide models whose logits grow in training.

    Args:
        scale: float. Scale exp(t) at the start.
        max_scale: float. Largest scale. A scale beyond it has no gradient.

    Call arguments and returns:
        As `Score`: from (B, N, T, H) and (B, N, S, H) to (B, N, T, S).

    Raises:
        ValueError: if `scale` is not above 0, or above `max_scale`.

    Example:
        >>> from keras_attn import layers, scores
        >>> layer = layers.MultiHeadAttention(8, 64, score=scores.Cosine())

    Differs from the paper: the bias of positions is a term of its own, as in `Cosine() + ALiBi()`;
        Henry et al. have one scale for all heads and no largest one.

    Reference: [Liu et al., 2022](https://arxiv.org/abs/2111.09883), section 3.3; without a largest
        scale: [Henry et al., 2020](https://arxiv.org/abs/2010.04245), section 3.
    """

    weight_axes = {"log_scale": ("model",)}

    def __init__(self, scale=10.0, max_scale=100.0, **kwargs):
        super().__init__(**kwargs)
        check_numbers(scale=scale, max_scale=max_scale)
        if not 0 < scale <= max_scale:
            raise ValueError(
                "`scale` must be above 0 and at most `max_scale`. "
                f"Received: scale={scale!r}, max_scale={max_scale!r}."
            )
        self.scale = float(scale)
        self.max_scale = float(max_scale)

    def build(self, query_shape, key_shape=None):
        start = keras.initializers.Constant(math.log(self.scale))
        self.log_scale = self.add_weight(query_shape[1:2], start, name="log_scale", autocast=False)

    def call(self, query, key, query_positions=None, key_positions=None):
        cosines = at_least_float32(query_keys(directions(query), directions(key)))
        scale = ops.exp(ops.minimum(self.log_scale, math.log(self.max_scale)))
        return cosines * ops.expand_dims(ops.cast(scale, cosines.dtype), (1, 2))
