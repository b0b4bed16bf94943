"""Sums of scores and biases."""

from keras import ops

from keras_attn.attention.inputs import distances_between, fill_positions, positions_by_head
from keras_attn.attention.relative_shift import distance_products, table_columns
from keras_attn.attention.softmax import at_least_float32
from keras_attn.ops.checks import check_shape
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
            raise ValueError(
                "`terms` must be scores and biases; a bias of your own is a subclass of "
                f"`scores.Bias`. Received: terms={terms!r}."
            )
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

    def _biases_of_distances(self, distances):
        """Return the sum (N, L + 1) of the biases of the distance; None if there is none."""
        columns = table_columns(distances)
        vectors = []
        for bias in self._biases(is_of_distances=True):
            vector = bias.distance_vector(columns)
            name = f"{type(bias).__name__}.of_distances"
            check_shape(vector, name, (self._num_heads, None), broadcast=True)
            vectors.append(ops.repeat(vector, self._num_heads // vector.shape[0], axis=0))
        return sum(vectors[1:], vectors[0]) if vectors else None

    @property
    def is_relative(self):
        return all(term.is_relative for term in self.terms if term.uses_positions)

    @property
    def shares_query(self):
        return any(term.shares_query for term in self.terms)

    def build(self, query_shape, key_shape=None):
        self._num_heads = query_shape[1]
        for term in self.terms:
            term.build_for(query_shape, key_shape)

    def distance_table(self, distances):
        """Return the tables of the scores by their numbers, and one vector (N, L + 1) of biases."""
        tables = {
            str(n): score.distance_table(distances)
            for n, score in enumerate(self._scores())
            if score.uses_positions
        }
        tables["biases"] = self._biases_of_distances(distances)
        return {name: table for name, table in tables.items() if table is not None} or None

    def products_of_tile(self, *sizes):
        return sum(score.products_of_tile(*sizes) for score in self._scores())

    def products_of_table(self, *sizes):
        return sum(score.products_of_table(*sizes) for score in self._scores())

    def call(
        self, query, key, query_positions=None, key_positions=None, table=None, distances=None
    ):
        query_positions, key_positions = fill_positions(query, key, query_positions, key_positions)
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
        elif self._biases(is_of_distances=True):
            if "biases" not in tables:
                tables, distances = {"biases": self._biases_of_distances(needed)}, needed
            vector = ops.expand_dims(ops.cast(tables["biases"], total.dtype), 1)  # (N, 1, L + 1)
            ones = ops.ones((1, query.shape[1], size(query, 2), 1), total.dtype)
            total = total + distance_products(ones, vector, distances, needed)
        i = ops.expand_dims(positions_by_head(query_positions), -1)
        j = ops.expand_dims(positions_by_head(key_positions), -2)
        for bias in pairwise:
            term, name = bias.of_pairs(i, j), f"{type(bias).__name__}.of_pairs"
            if len(term.shape) > 4:  # as of version 0.2.0, whose positions had no axis to broadcast
                raise ValueError(
                    f"`{name}` must use its positions as they are, such as `i - j`: they broadcast "
                    f"to the pairs without new axes. Received: shape={tuple(term.shape)}."
                )
            check_shape(term, name, tuple(total.shape), broadcast=True)
            total = total + ops.cast(term, total.dtype)
        return total


Score.sum_type = Sum
