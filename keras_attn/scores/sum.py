"""Sums of scores and biases, and logits with a cap."""

from keras import ops

from keras_attn.attention.inputs import default_positions, distances_between, positions_by_head
from keras_attn.attention.relative_shift import distance_products, table_columns
from keras_attn.attention.softmax import at_least_float32
from keras_attn.ops.checks import check_numbers
from keras_attn.ops.shapes import size
from keras_attn.registry import register, revive
from keras_attn.scores.bias import Bias
from keras_attn.scores.score import Score, ScoreLayer


@register
class Sum(ScoreLayer):
    """Sum of scores and biases, written with `+`.

        logit(q, k) = score_1(q, k) + score_2(q, k) + ... + bias_1(i, j) + bias_2(i, j) + ...

    Biases of the distance alone are added up as one vector of all distances, which is shifted into
    place. Sums are float32. Cost: those of the terms; for biases of the distance time and memory
    O(T S) per head in all.

    Use it for a score with a bias.

    Args:
        terms: scores and biases; a sum among them counts as its own terms.

    Call arguments and returns:
        As `Score`: from (B, N, T, H) and (B, N, S, H) to (B, N, T, S).

    Raises:
        ValueError: if a term is no score, or all of them are biases.

    Example:
        >>> from keras_attn import scores
        >>> scores.DotProduct() + scores.ALiBi()
        Sum([DotProduct(), ALiBi()])

    Differs from the paper: none; each term names its own.

    Reference: [Raffel et al., 2020](https://arxiv.org/abs/1910.10683), section 2.1.
    """

    uses_positions = True

    def __init__(self, terms, **kwargs):
        super().__init__(**kwargs)
        terms = [revive(term) for term in terms]
        if not all(isinstance(term, Score) for term in terms):
            raise ValueError(f"`terms` must be scores and biases. Received: terms={terms!r}.")
        self.terms = [t for term in terms for t in (term.terms if type(term) is Sum else [term])]
        if not self._scores():
            raise ValueError(
                f"A bias is added to a score, such as DotProduct() + {self.terms[-1]!r}. "
                f"Received: terms={terms!r}."
            )

    def _scores(self):
        return [term for term in self.terms if not isinstance(term, Bias)]

    def _biases(self, is_of_distances):
        biases = [term for term in self.terms if isinstance(term, Bias)]
        return [bias for bias in biases if bias.is_of_distances == is_of_distances]

    @property
    def shares_query(self):
        return any(term.shares_query for term in self.terms)

    def build(self, query_shape, key_shape=None):
        for term in self.terms:
            term.build_for(query_shape, key_shape)

    def distance_table(self, distances):
        """Return the tables of the scores by their numbers, and one vector (N, L + 1) of biases."""
        tables = {
            str(n): score.distance_table(distances)
            for n, score in enumerate(self._scores())
            if score.uses_positions
        }
        columns = table_columns(distances)
        biases = [bias.of_distances(columns) for bias in self._biases(is_of_distances=True)]
        if biases:
            tables["biases"] = sum(biases[1:], biases[0])
        return {name: table for name, table in tables.items() if table is not None} or None

    def call(
        self, query, key, query_positions=None, key_positions=None, table=None, distances=None
    ):
        queries, keys = default_positions(size(query, 2), size(key, 2))
        query_positions = queries if query_positions is None else query_positions
        key_positions = keys if key_positions is None else key_positions
        positions = {"query_positions": query_positions, "key_positions": key_positions}
        tables = table or {}
        total = 0
        for n, score in enumerate(self._scores()):
            given = positions
            if str(n) in tables:
                given = {**positions, "table": tables[str(n)], "distances": distances}
            total = total + at_least_float32(score(query, key, **given))
        needed = distances_between(query_positions, key_positions)
        pairwise = self._biases(is_of_distances=False)
        if needed is None:
            pairwise = pairwise + self._biases(is_of_distances=True)
        elif by_distance := self._biases(is_of_distances=True):
            if "biases" not in tables:
                vectors = [bias.of_distances(table_columns(needed)) for bias in by_distance]
                tables, distances = {"biases": sum(vectors[1:], vectors[0])}, needed
            vector = ops.cast(tables["biases"], total.dtype)[:, None]  # (N, 1, L + 1)
            ones = ops.ones((1, query.shape[1], size(query, 2), 1), total.dtype)
            total = total + distance_products(ones, vector, distances, needed)
        i, j = positions_by_head(query_positions), positions_by_head(key_positions)
        return sum((ops.cast(bias.of_pairs(i, j), total.dtype) for bias in pairwise), total)


@register
class SoftCap(ScoreLayer):
    """Score whose logits are squashed to less than a cap.

        logit(q, k) = cap tanh(score(q, k) / cap)

    The mask comes after the cap. The gradient of logits far above the cap vanishes, so a model that
    was trained without one stops learning there. Cost: that of the score, and time O(T S) per head.

    Use it for Gemma 2's attention, and where logits grow in training.

    Args:
        score: name or object of a score.
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
        check_numbers(cap=cap)
        if cap <= 0:
            raise ValueError(f"`cap` must be above 0. Received: cap={cap!r}.")
        if not isinstance(score, Score) or isinstance(score, Bias):
            raise ValueError(f"`score` must be a score. Received: score={score!r}.")
        self.score = score
        self.cap = float(cap)

    @property
    def shares_query(self):
        return self.score.shares_query

    @property
    def uses_positions(self):
        return self.score.uses_positions

    def build(self, query_shape, key_shape=None):
        self.score.build_for(query_shape, key_shape)

    def distance_table(self, distances):
        return self.score.distance_table(distances)

    def call(
        self, query, key, query_positions=None, key_positions=None, table=None, distances=None
    ):
        given = {} if table is None else {"table": table, "distances": distances}
        positions = {"query_positions": query_positions, "key_positions": key_positions}
        logits = self.score(query, key, **positions, **given)
        return self.cap * ops.tanh(at_least_float32(logits) / self.cap)


Score.sum_type = Sum
