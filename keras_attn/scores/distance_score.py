"""Base class of scores with a term for the distance of a query and a key."""

from keras import ops

from keras_attn.attention.inputs import distances_between, fill_positions, positions_by_head
from keras_attn.attention.relative_shift import distance_products, table_products
from keras_attn.attention.softmax import query_keys
from keras_attn.ops.shapes import size
from keras_attn.scores.score import ScoreLayer


class DistanceScore(ScoreLayer):
    """A score of keys and of their distances.

        logit(i, j) = a_i . k_j + b_i . r_{i-j}

    Where positions follow each other, r is a table with a column for each of the T + S - 1
    distances, whose products with b are shifted into place. A subclass defines `queries`,
    `distance_table` and `products`.

    Call arguments:
        query: (B, N, T, H). key: (B, N, S, H).
        query_positions, key_positions: `PositionRange`s or int (T,), (B, T) or (B, N, T); by
            default the queries are the last T of S positions.
        table: the `distance_table` of `distances`; computed if it is None.

    Returns:
        (B, N, T, S).
    """

    uses_positions = is_relative = True

    def queries(self, query):
        """Return a and b (B, N, T, H), divided by the root of H."""
        raise NotImplementedError(f"{type(self).__name__} must define `queries`.")

    def products(self, query, i, j):
        """Compute the products (B, N, T, S) of b with r for positions i and j in any order."""
        raise NotImplementedError(f"{type(self).__name__} must define `products`.")

    def table_of_call(self, needed, query_positions, num_keys):
        """Return a table that has the needed distances, and all distances that it has."""
        return self.distance_table(needed), needed

    def products_of_tile(self, length, num_keys, head_dim, has_table):
        content = length * num_keys * head_dim
        if has_table:
            return content + table_products(length, num_keys, head_dim)
        return content + self.irregular_products(length, num_keys, head_dim)

    def irregular_products(self, length, num_keys, head_dim):
        """Return the multiply-adds of `products` for one head."""
        return length * num_keys * head_dim

    def call(
        self, query, key, query_positions=None, key_positions=None, table=None, distances=None
    ):
        num_keys = size(key, 2)
        query_positions, key_positions = fill_positions(query, key, query_positions, key_positions)
        by_content, by_distance = self.queries(query)
        needed = distances_between(query_positions, key_positions)
        if needed is None:
            i, j = positions_by_head(query_positions), positions_by_head(key_positions)
            products = self.products(by_distance, i, j)
        else:
            if table is None:
                table, distances = self.table_of_call(needed, query_positions, num_keys)
            products = distance_products(by_distance, table, distances, needed)
        logits = query_keys(by_content, key)
        return logits + ops.cast(products, logits.dtype)
