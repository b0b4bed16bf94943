"""Patterns made of patterns: intersection, union, and one pattern for each head."""

from keras import ops

from keras_attn.attention.softmax import merge_by_logsumexp
from keras_attn.ops.shapes import UNKNOWN_LENGTH
from keras_attn.patterns.pattern import Pattern
from keras_attn.registry import register


class SameAs(Pattern):
    """A pattern that is computed as another, which subclasses assign to `same`."""

    supports_segments = True

    @property
    def causal(self):
        return self.same.causal

    @property
    def cache_sinks(self):
        return self.same.cache_sinks

    def mask_mod(self, i, j):
        return self.same.mask_mod(i, j)

    def attend(self, inputs, log_weight=False):
        return self.same.attend_blockwise(inputs, log_weight)

    def keys_per_query(self, num_keys):
        return self.same.keys_per_query(num_keys)

    def cache_size(self):
        return self.same.cache_size()

    def decode_keys(self, position, num_keys):
        return self.same.decode_keys(position, num_keys)


def joint_cache_size(patterns):
    """Return the size of a cache that keeps the keys of all patterns; None for all keys."""
    sizes = [(pattern.cache_size(), pattern.cache_sinks) for pattern in patterns]
    if any(size is None for size, _ in sizes):
        return None
    return max(sinks for _, sinks in sizes) + max(size - sinks for size, sinks in sizes)


class Combined(Pattern):
    """Two patterns, which subclasses combine into one."""

    def __init__(self, first, second):
        self.first, self.second = _of_positions(first, "first"), _of_positions(second, "second")


def _of_positions(identifier, name):
    """Return the pattern for a name or an object; refuse one that reads more than positions."""
    pattern = Pattern.get(identifier, name)
    if not pattern.is_of_positions or pattern.differs_by_head:
        raise ValueError(
            f"`{name}` of a combined pattern must be a function of positions alone, which "
            f"{type(pattern).__name__} is not. Received: {name}={pattern!r}."
        )
    return pattern


@register
class Both(Combined):
    """`p & q`: a query attends to the keys that both patterns allow.

        allowed(i, j) = p.allowed(i, j) and q.allowed(i, j)

    Computed by the plan of the pattern that leaves out more, restricted to the pairs of the other.
    Time and memory are those of the pattern that leaves out more.

    Use it for a pattern restricted by another one, such as a window that must also be causal.

    Args:
        first, second: names or objects of patterns.

    Raises:
        ValueError: if one of them is not a function of positions alone.

    Example:
        >>> from keras_attn.patterns import Causal, Local
        >>> Local(3, causal=False) & Causal()
        Both(Local(3, causal=False), Causal())

    Differs from the paper: none; papers write the intersection of two sets of keys.

    Reference: [Child et al., 2019](https://arxiv.org/abs/1904.10509), section 4.2.
    """

    supports_segments = True

    @property
    def causal(self):
        return self.first.causal or self.second.causal

    def mask_mod(self, i, j):
        return ops.logical_and(self.first.mask_mod(i, j), self.second.mask_mod(i, j))

    def attend(self, inputs, log_weight=False):
        sparse, other = self._sparser_first(inputs.key.shape[2])
        return sparse.attend_blockwise(inputs.restricted(other.mask_mod), log_weight)

    def keys_per_query(self, num_keys):
        return min(p.keys_per_query(num_keys) for p in (self.first, self.second))

    @property
    def cache_sinks(self):
        return min(self._caches(), default=(None, 0))[1]

    def cache_size(self):
        return min(self._caches(), default=(None, 0))[0]

    def _caches(self):
        """Return the size and the sinks of each pattern's cache that does not keep all keys."""
        sizes = [(p.cache_size(), p.cache_sinks) for p in (self.first, self.second)]
        return [size for size in sizes if size[0] is not None]

    def decode_keys(self, position, num_keys):
        for pattern in self._sparser_first(num_keys if isinstance(num_keys, int) else None):
            positions = pattern.decode_keys(position, num_keys)
            if positions is not None:
                return positions
        return None

    def _sparser_first(self, num_keys):
        num_keys = num_keys or UNKNOWN_LENGTH
        return sorted((self.first, self.second), key=lambda p: p.keys_per_query(num_keys))


@register
class Either(Combined):
    """`p | q`: a query attends to the keys that at least one pattern allows, under one softmax.

        allowed(i, j) = p.allowed(i, j) or q.allowed(i, j)

    Each pattern's plan computes its own pairs, the second without those of the first, and the two
    are merged into the exact softmax over the union. Time and memory are the sum of both patterns'.

    Use it for a union of patterns under one softmax, such as a window and some distant keys.

    Args:
        first, second: names or objects of patterns.

    Raises:
        ValueError: if one of them is not a function of positions alone.

    Example:
        >>> from keras_attn.patterns import BlockLocal1D, Local
        >>> Local(3) | BlockLocal1D(8, lookback=0)
        Either(Local(3), BlockLocal1D(8, 0))

    Differs from the paper: none; a "merged" head of the paper.

    Reference: [Child et al., 2019](https://arxiv.org/abs/1904.10509), section 4.3, eq. 8.
    """

    supports_segments = True

    @property
    def causal(self):
        return self.first.causal and self.second.causal

    def mask_mod(self, i, j):
        return ops.logical_or(self.first.mask_mod(i, j), self.second.mask_mod(i, j))

    def attend(self, inputs, log_weight=False):
        num_keys = inputs.key.shape[2] or UNKNOWN_LENGTH
        if self.keys_per_query(num_keys) >= num_keys:
            return super().attend(inputs, log_weight)
        rest = inputs.restricted(lambda i, j: ops.logical_not(self.first.mask_mod(i, j)))
        first = self.first.attend_blockwise(inputs.fold_in(1), log_weight=True)
        second = self.second.attend_blockwise(rest.fold_in(2), log_weight=True)
        output, log_weights = merge_by_logsumexp([first, second])
        return output, log_weights if log_weight else None

    def keys_per_query(self, num_keys):
        return min(num_keys, sum(p.keys_per_query(num_keys) for p in (self.first, self.second)))

    @property
    def cache_sinks(self):
        return max(self.first.cache_sinks, self.second.cache_sinks)

    def cache_size(self):
        return joint_cache_size([self.first, self.second])

    def decode_keys(self, position, num_keys):
        first, second = (p.decode_keys(position, num_keys) for p in (self.first, self.second))
        if first is None or second is None:
            return None
        # Keys that the first allows come from its own list, so that no key comes twice.
        first = ops.where(self.first.mask_mod(position, first), first, -1)
        second = ops.where(self.first.mask_mod(position, second), -1, second)
        return ops.concatenate([first, second])


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
        self.patterns = tuple(_of_positions(p, f"patterns[{n}]") for n, p in named)

    @property
    def causal(self):
        return all(pattern.causal for pattern in self.patterns)

    def allowed(self, query_positions, key_positions):
        """Return a bool (N, T, S), or (B, N, T, S) for positions of each row."""
        allowed = [p.allowed(query_positions, key_positions) for p in self.patterns]
        return ops.stack(allowed, axis=-3)

    def mask(self, query_positions, key_positions):
        allowed = self.allowed(query_positions, key_positions)
        return allowed[None] if len(allowed.shape) == 3 else allowed

    def dense_mask_and_bias(self, inputs):
        self._check(inputs)
        return super().dense_mask_and_bias(inputs)

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

    def keys_per_query(self, num_keys):
        return max(pattern.keys_per_query(num_keys) for pattern in self.patterns)

    @property
    def cache_sinks(self):
        return max(pattern.cache_sinks for pattern in self.patterns)

    def cache_size(self):
        return joint_cache_size(self.patterns)

    def __and__(self, other):
        return PerHead([pattern & other for pattern in self.patterns])

    def __or__(self, other):
        return PerHead([pattern | other for pattern in self.patterns])

    __rand__, __ror__ = __and__, __or__

    def _check(self, inputs):
        num_heads = inputs.query.shape[1]
        if num_heads != len(self.patterns):
            raise ValueError(
                "`patterns` of PerHead must be one for each head. "
                f"Received: {len(self.patterns)} patterns, {num_heads} heads."
            )


Pattern.combinations.update({"and": Both, "or": Either})
