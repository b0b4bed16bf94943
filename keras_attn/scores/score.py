"""Base classes of the score axis."""

from keras_attn import registry
from keras_attn.attention.inputs import positions_by_head


class Score(registry.Value):
    """The logit of a query and a key, before the softmax.

        (query (B, N, T, H), key (B, N, S, H), query_positions, key_positions)
            -> logits (B, N, T, S)

    for any tile of queries and keys. A score of one's own overrides `__call__`; one with weights is
    a subclass of `ScoreLayer` and overrides `call`. A score is saved with the layer that holds it.

    Positions are int32 (T,), (B, T) or (B or 1, N or 1, T), or a range that stands for them:
    `self.positions_by_head` turns each into a tensor. A term of positions alone is easier written
    as a `Bias`.

    Attributes:
        shares_query: True asks the layer to project queries and keys by one projection.
        uses_positions: True if logits depend on positions too: plans ask such a score for a
            `distance_table`.
        is_relative: True if logits depend on the differences of positions alone: plans may then
            give the positions of one block for those of all.
        has_weights: True if the score has weights, which are those of all heads: it then gets all
            heads at once.
        is_linear: True for a `KernelScore`, whose attention weights are products of features:
            attention with it may take linear time.
    """

    shares_query = False
    uses_positions = False
    is_relative = False
    has_weights = False
    is_linear = False
    trainable_variables = ()

    def __call__(self, query, key, query_positions=None, key_positions=None):
        raise NotImplementedError(f"{type(self).__name__} must define `__call__`.")

    @staticmethod
    def positions_by_head(positions):
        """Return the positions of a call as int32 (B or 1, N or 1, T)."""
        return positions_by_head(positions)

    def build_for(self, query_shape, key_shape):
        """Create the weights for per-head queries (B, N, T, H) and keys (B, N, S, H)."""

    def distance_table(self, distances):
        """Return a tensor that serves all `distances`, a `PositionRange`; None if none is needed.

        A plan computes it once and calls the score with `table=` and `distances=` in each tile.
        """
        return None

    def products_of_tile(self, length, num_keys, head_dim, has_table):
        """Return the multiply-adds of the logits of one head and tile, here of a dot product.

        Args:
            length, num_keys: ints. Queries and keys of the tile.
            has_table: True if the plan makes a `distance_table` for all tiles.
        """
        return length * num_keys * head_dim

    def products_of_table(self, num_distances, num_heads, head_dim):
        """Return the multiply-adds of a `distance_table` for all heads."""
        return 0

    def kernel_scale(self, head_dim):
        """Return the factor of a plain dot product, which fused kernels compute, else None."""
        return None

    # The class of `score + score`, which `keras_attn.scores.sum` sets.
    sum_type = None

    def __add__(self, other):
        return self.sum_type([self, other])

    def __radd__(self, other):  # `sum(scores)` begins with 0
        return self if isinstance(other, int) and other == 0 else NotImplemented


class ScoreLayer(registry.LayerValue, Score):
    """A score with weights; subclasses override `build` and `call`.

    The arguments and the result of `call` are those of `Score`: from (B, N, T, H) and (B, N, S, H)
    to (B, N, T, S).
    """

    has_weights = True

    def build(self, query_shape, key_shape=None):
        """Create the weights, for shapes (B, N, T, H) and (B, N, S, H); by default none."""

    def build_for(self, query_shape, key_shape):
        registry.build_once(self, query_shape, key_shape)

    def compute_output_shape(self, query_shape, key_shape):
        return (*query_shape[:3], key_shape[2])
