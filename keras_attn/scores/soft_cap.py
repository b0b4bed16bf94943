"""Scores with a cap on their logits."""

from keras import ops

from keras_attn.attention.softmax import at_least_float32
from keras_attn.ops.checks import check_positive
from keras_attn.registry import register, revive
from keras_attn.scores.bias import Bias
from keras_attn.scores.score import Score, ScoreLayer


@register
class SoftCap(ScoreLayer):
    """Score whose logits are squashed to less than a cap.

        logit(q, k) = cap tanh(score(q, k) / cap)

    The mask comes after the cap. The gradient of logits far above the cap vanishes, so a model that
    was trained without one stops learning there. Cost: that of the score, and time O(T S) per head.

    Use it for Gemma 2's attention, and where logits grow in training.

    Args:
        score: object of a score, which may be a sum with biases.
        cap: float. Bound of the logits.

    Call arguments and returns:
        As `Score`: from (B, N, T, H) and (B, N, S, H) to (B, N, T, S).

    Raises:
        ValueError: if `cap` is not above 0, or `score` is a bias.

    Example:
        >>> from keras_attn import scores
        >>> score = scores.SoftCap(scores.DotProduct(scaled=False) + scores.T5Bias(), 50.0)

    Differs from the paper: none.

    Reference: [Gemma Team, 2024](https://arxiv.org/abs/2408.00118), section 2.
    """

    def __init__(self, score, cap, **kwargs):
        super().__init__(**kwargs)
        score = revive(score)
        check_positive(cap=cap)
        if not isinstance(score, Score) or isinstance(score, Bias):
            raise ValueError(
                "`score` must be a score, to which biases may be added, such as "
                f"DotProduct() + ALiBi(). Received: score={score!r}."
            )
        self.score = score
        self.cap = float(cap)

    @property
    def shares_query(self):
        return self.score.shares_query

    @property
    def uses_positions(self):
        return self.score.uses_positions

    @property
    def is_relative(self):
        return self.score.is_relative

    def build(self, query_shape, key_shape=None):
        self.score.build_for(query_shape, key_shape)

    def distance_table(self, distances):
        return self.score.distance_table(distances)

    def products_of_tile(self, *sizes):
        return self.score.products_of_tile(*sizes)

    def products_of_table(self, *sizes):
        return self.score.products_of_table(*sizes)

    def call(
        self, query, key, query_positions=None, key_positions=None, table=None, distances=None
    ):
        given = {} if table is None else {"table": table, "distances": distances}
        positions = {"query_positions": query_positions, "key_positions": key_positions}
        logits = self.score(query, key, **positions, **given)
        return self.cap * ops.tanh(at_least_float32(logits) / self.cap)
