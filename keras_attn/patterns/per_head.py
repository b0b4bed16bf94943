"""One pattern for each head."""

import functools

from keras import ops

from keras_attn.patterns.combined import joint_cache_size, of_positions
from keras_attn.patterns.pattern import Pattern
from keras_attn.registry import register


@register
class PerHead(Pattern):
    """Each head has a pattern of its own.

        allowed(n, i, j) = patterns[n].allowed(i, j)

    `&` and `|` with another pattern change each head's. Heads of the same pattern are computed
    together by its plan. Time and memory the sum over the heads; a score with weights computes all
    heads once for each different pattern.

    Use it for heads with different tasks, such as some that look near and some that look far.

    Args:
        patterns: list of names or objects of patterns, one for each head of the layer.

    Raises:
        ValueError: if a pattern is not a function of positions alone, or if their number is not
            the layer's number of heads.

    Example:
        >>> from keras_attn.layers import MultiHeadAttention
        >>> from keras_attn.patterns import PerHead, Strided
        >>> local, column = Strided(8, factor="local"), Strided(8, factor="column")
        >>> layer = MultiHeadAttention(4, 16, pattern=PerHead([local, local, column, column]))

    Differs from the paper: none; the paper's "multi-head" use of its factors.

    Reference: [Child et al., 2019](https://arxiv.org/abs/1904.10509), section 4.3, eq. 9.
    """

    differs_by_head = True
    supports_segments = True

    def __init__(self, patterns):
        if isinstance(patterns, (str, Pattern)) or not patterns:
            raise ValueError(
                "`patterns` must be a list of patterns, one for each head. "
                f"Received: patterns={patterns!r}."
            )
        named = enumerate(patterns)
        self.patterns = tuple(of_positions(p, f"patterns[{n}]") for n, p in named)

    @property
    def causal(self):
        return all(pattern.causal for pattern in self.patterns)

    def allowed(self, query_positions, key_positions):
        """Return a bool (N, T, S), or (B, N, T, S) for positions of each row."""
        allowed = [p.allowed(query_positions, key_positions) for p in self.patterns]
        if len({tuple(of_head.shape) for of_head in allowed}) > 1:  # a rule of i or of j alone
            shape = ops.shape(functools.reduce(ops.logical_or, allowed))
            allowed = [ops.broadcast_to(of_head, shape) for of_head in allowed]
        return ops.stack(allowed, axis=-3)

    def mask(self, query_positions, key_positions):
        allowed = self.allowed(query_positions, key_positions)
        return allowed[None] if len(allowed.shape) == 3 else allowed

    def dense_mask_and_bias(self, inputs):
        self._check(inputs)
        return super().dense_mask_and_bias(inputs)

    def check_length(self, length):
        for pattern in self.patterns:
            pattern.check_length(length)

    def attend(self, inputs, log_weight=False):
        self._check(inputs)
        # A score's weights are those of all heads: such a score computes all heads at once.
        together = inputs.score.has_weights
        results = [None] * len(self.patterns)
        for pattern in dict.fromkeys(self.patterns):
            heads = [n for n, other in enumerate(self.patterns) if other == pattern]
            part = inputs.fold_in(heads[0])
            part = part if together else part.heads(heads)
            found = pattern.attend_blockwise(part, log_weight)
            for number, head in enumerate(heads):
                index = head if together else number
                results[head] = [None if x is None else x[:, index] for x in found]
        output, log_weights = zip(*results, strict=True)
        return ops.stack(output, axis=1), ops.stack(log_weights, axis=1) if log_weight else None

    def tiles(self, inputs):
        found = []
        for pattern in dict.fromkeys(self.patterns):
            heads = range(self.patterns.count(pattern))
            part = inputs if inputs.score.has_weights else inputs.heads(heads)
            found += pattern.tiles(part)
        return found

    def keys_per_query(self, num_keys):
        return max(pattern.keys_per_query(num_keys) for pattern in self.patterns)

    @property
    def cache_sinks(self):
        return max(pattern.cache_sinks for pattern in self.patterns)

    def cache_size(self):
        return joint_cache_size(self.patterns)

    def __and__(self, other):
        other = _for_all_heads(other)
        return PerHead([pattern & other for pattern in self.patterns])

    def __or__(self, other):
        other = _for_all_heads(other)
        return PerHead([pattern | other for pattern in self.patterns])

    __rand__, __ror__ = __and__, __or__

    def _check(self, inputs):
        num_heads = inputs.query.shape[1]
        if num_heads != len(self.patterns):
            raise ValueError(
                "`patterns` of PerHead must be one for each head. "
                f"Received: {len(self.patterns)} patterns, {num_heads} heads."
            )


def _for_all_heads(other):
    """Return the pattern that each head is combined with; refuse one that differs by head."""
    other = Pattern.get(other, "second")
    if other.differs_by_head:
        raise ValueError(
            "Two patterns by head are combined head by head: `PerHead([p & q, ...])`. "
            f"Received: second={other!r}."
        )
    return other
