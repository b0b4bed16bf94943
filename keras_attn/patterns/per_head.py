"""A pattern for each head."""

import keras
from keras import ops

from keras_attn import registry
from keras_attn.patterns.pattern import Pattern
from keras_attn.registry import register


@register
class PerHead(Pattern):
    """Each head has a pattern of its own.

        allowed(n, i, j) = patterns[n].allowed(i, j)

    `&` and `|` with another pattern change each head's. Heads of the same pattern are computed together by its plan. Time and memory the sum over the
    heads; a score that has weights of its own computes all heads once for each different pattern.

    Args:
        patterns: list of patterns, one for each head of the layer.

    Raises:
        ValueError: if a pattern is not a function of positions alone, or if their number is not
            the layer's number of heads.

    Example:
        >>> import keras_attn
        >>> from keras_attn.patterns import PerHead, Strided
        >>> local, column = Strided(8, factor="local"), Strided(8, factor="column")
        >>> layer = keras_attn.layers.MultiHeadAttention(
        ...     4, 16, pattern=PerHead([local, local, column, column]))

    Differs from the paper: none; the paper's "multi-head" use of its factors.

    Reference: [Child et al., 2019](https://arxiv.org/abs/1904.10509), section 4.3, eq. 9.
    """

    def __init__(self, patterns):
        if isinstance(patterns, (str, Pattern)) or not patterns:
            raise ValueError(
                "`patterns` must be a list of patterns, one for each head. "
                f"Received: patterns={patterns!r}."
            )
        patterns = tuple(patterns)
        for number, pattern in enumerate(patterns):
            self.check(**{f"patterns[{number}]": pattern})
            if not pattern.is_of_positions or isinstance(pattern, PerHead):
                raise ValueError(
                    "Each of `patterns` must be a function of positions alone. "
                    f"Received: patterns={list(patterns)!r}."
                )
        self.patterns = patterns

    @property
    def causal(self):
        return all(pattern.causal for pattern in self.patterns)

    def allowed(self, query_positions, key_positions):
        """Bool (N, T, S), or (B, N, T, S) where positions have rows."""
        allowed = [p.allowed(query_positions, key_positions) for p in self.patterns]
        return ops.stack(allowed, axis=-3)

    def mask(self, query_positions, key_positions):
        allowed = self.allowed(query_positions, key_positions)
        return allowed[None] if len(allowed.shape) == 3 else allowed

    def matrix(self, operands):
        self._check(operands)
        return super().matrix(operands)

    def attend(self, operands, log_weight=False):
        self._check(operands)
        # The weights of a score are those of all heads, in an order that only the score knows.
        together = isinstance(operands.score, keras.layers.Layer)
        results = [None] * len(self.patterns)
        for pattern in dict.fromkeys(self.patterns):
            heads = [n for n, other in enumerate(self.patterns) if other == pattern]
            part = operands.part(heads[0])
            found = pattern.attend(part if together else part.heads(heads), log_weight)
            for place, head in enumerate(heads):
                place = head if together else place
                results[head] = [None if x is None else x[:, place] for x in found]
        output, log_weights = zip(*results, strict=True)
        return ops.stack(output, axis=1), ops.stack(log_weights, axis=1) if log_weight else None

    def keys_per_query(self, num_keys):
        return max(pattern.keys_per_query(num_keys) for pattern in self.patterns)

    def cache_size(self):
        kept = [pattern.cache_size() for pattern in self.patterns]
        return None if None in kept else max(kept, default=None)

    def __and__(self, other):
        return PerHead([pattern & other for pattern in self.patterns])

    def __or__(self, other):
        return PerHead([pattern | other for pattern in self.patterns])

    def _check(self, operands):
        num_heads = operands.query.shape[1]
        if num_heads != len(self.patterns):
            raise ValueError(
                "`patterns` of PerHead must be one for each head. "
                f"Received: {len(self.patterns)} patterns, {num_heads} heads."
            )

    def get_config(self):
        return {"patterns": [registry.serialize(pattern) for pattern in self.patterns]}

    @classmethod
    def from_config(cls, config):
        return cls([registry.deserialize(pattern) for pattern in config["patterns"]])

    def __repr__(self):
        return f"PerHead(patterns={list(self.patterns)!r})"
