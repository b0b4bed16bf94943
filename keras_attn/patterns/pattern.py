"""What every pattern is."""

from keras import ops

from keras_attn.axis import Value


class Pattern(Value):
    """Which keys a query may meet, as a function of integer positions.

        allowed(i, j) -> bool,   i query position, j key position

    Since positions are data, the same function serves full sequences, memories, caches and packed
    rows. A pattern has no weights and is saved with the layer that holds it.

    Example:
        >>> from keras import ops
        >>> from keras_attn.patterns import Causal
        >>> ops.convert_to_numpy(Causal().allowed(ops.arange(2), ops.arange(3))).astype(int)
        array([[1, 0, 0],
               [1, 1, 0]])

    Reference: attention patterns as index sets:
        [Child et al., 2019](https://arxiv.org/abs/1904.10509), section 4.2.
    """

    def allowed(self, query_positions, key_positions):
        """Bool (..., T, S) for positions (T,) or (B, T) and (S,) or (B, S)."""
        i, j = (ops.cast(positions, "int32") for positions in (query_positions, key_positions))
        return self._pairwise(i[..., :, None], j[..., None, :])

    def mask(self, query_positions, key_positions):
        """`allowed` with a head axis, (1 or B, 1, T, S); None where everything is allowed."""
        allowed = self.allowed(query_positions, key_positions)
        return allowed[None, None] if len(allowed.shape) == 2 else ops.expand_dims(allowed, 1)
