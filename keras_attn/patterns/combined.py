"""Patterns made of patterns: intersection, union, and one for each head."""

import functools

from keras import ops

from keras_attn.attention.plans import Chunked, Plan
from keras_attn.attention.softmax import merge_by_logsumexp
from keras_attn.ops.shapes import UNKNOWN_LENGTH
from keras_attn.patterns.pattern import COMBINATIONS, KeptKeys, Pattern, get_pattern
from keras_attn.registry import register


class SameAs:
    """Mixin of patterns that are computed as another one, which they assign to `same`."""

    @property
    def causal(self):
        return self.same.causal

    @property
    def kept_keys(self):
        return self.same.kept_keys

    @property
    def plan(self):
        return self.same.plan

    def mask_mod(self, i, j):
        return self.same.mask_mod(i, j)


def joint_sizes(patterns):
    """Return the size and the sinks of a cache that keeps the keys of all patterns.

    The size is None for all keys.
    """
    kept = [pattern.kept_keys for pattern in patterns]
    sinks = max(keys.sinks for keys in kept)
    if any(keys.size is None for keys in kept):
        return None, sinks
    return sinks + max(keys.size - keys.sinks for keys in kept), sinks


class Combined(Pattern):
    """Two patterns, which subclasses combine into one."""

    def __init__(self, first, second):
        self.first = refuse_unless_of_positions(first, "first")
        self.second = refuse_unless_of_positions(second, "second")

    def check(self, score=None, length=None):
        for pattern in (self.first, self.second):
            pattern.check(score, length)


def refuse_unless_of_positions(identifier, name):
    """Return the pattern for a name or an object; refuse one that reads more than positions."""
    pattern = get_pattern(identifier, name)
    if isinstance(pattern, PerHead):
        raise ValueError(
            f"`{name}` of a combined pattern must be one pattern for all heads; a `PerHead` holds "
            f"combined ones. Received: {name}={pattern!r}."
        )
    if not pattern.is_of_positions:
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

    @property
    def causal(self):
        return self.first.causal or self.second.causal

    def mask_mod(self, i, j):
        return ops.logical_and(self.first.mask_mod(i, j), self.second.mask_mod(i, j))

    @functools.cached_property
    def plan(self):
        return Intersection(self.first, self.second)

    @property
    def kept_keys(self):
        return KeptKeys(*self._least_kept(), self._keys_in_reach)

    def _least_kept(self):
        """Return the size and the sinks of the smaller of both patterns' caches."""
        kept = [pattern.kept_keys for pattern in (self.first, self.second)]
        return min(((k.size, k.sinks) for k in kept if k.size is not None), default=(None, 0))

    def _keys_in_reach(self, position, num_keys):
        for pattern in self.plan.sparser_first(num_keys if isinstance(num_keys, int) else None):
            keys_in_reach = pattern.kept_keys.positions
            keys = None if keys_in_reach is None else keys_in_reach(position, num_keys)
            if keys is not None:
                return keys
        return None


class Intersection(Plan):
    """The plan of the pattern that leaves out more, restricted to the pairs of the other."""

    def __init__(self, first, second):
        super().__init__(lambda i, j: ops.logical_and(first.mask_mod(i, j), second.mask_mod(i, j)))
        self.first, self.second = first, second

    def attend_row(self, inputs, log_weight=False):
        sparse, other = self.sparser_first(inputs.key.shape[2])
        return sparse.plan.attend(inputs.restricted(other.mask_mod), log_weight)

    attend_documents = attend_row  # the plans of the parts keep documents apart

    def tiles(self, inputs):
        sparse, other = self.sparser_first(inputs.key.shape[2])
        return sparse.plan.tiles(inputs.restricted(other.mask_mod))

    def keys_per_query(self, num_keys):
        return min(p.keys_per_query(num_keys) for p in (self.first, self.second))

    def sparser_first(self, num_keys):
        """Return both patterns, first the one that computes fewer of `num_keys` keys (or None)."""
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

    @property
    def causal(self):
        return self.first.causal and self.second.causal

    def mask_mod(self, i, j):
        return ops.logical_or(self.first.mask_mod(i, j), self.second.mask_mod(i, j))

    @functools.cached_property
    def plan(self):
        return Union(self.first, self.second)

    @property
    def kept_keys(self):
        parts = self.first.kept_keys.positions, self.second.kept_keys.positions
        return KeptKeys(
            *joint_sizes([self.first, self.second]), None if None in parts else self._keys_in_reach
        )

    def _keys_in_reach(self, position, num_keys):
        first, second = (
            p.kept_keys.positions(position, num_keys) for p in (self.first, self.second)
        )
        if first is None or second is None:
            return None
        # Keys that the first allows come from its own list, so that no key comes twice.
        first = ops.where(self.first.mask_mod(position, first), first, -1)
        second = ops.where(self.first.mask_mod(position, second), -1, second)
        return ops.concatenate([first, second])


class Union(Plan):
    """Each pattern's plan for its own pairs, the second without those of the first, merged."""

    def __init__(self, first, second):
        super().__init__(lambda i, j: ops.logical_or(first.mask_mod(i, j), second.mask_mod(i, j)))
        self.first, self.second = first, second

    def attend_row(self, inputs, log_weight=False):
        if self._is_all(inputs.key.shape[2]):
            return Chunked(self.mask_mod).attend_row(inputs, log_weight)
        rest = inputs.restricted(lambda i, j: ops.logical_not(self.first.mask_mod(i, j)))
        first = self.first.plan.attend(inputs.fold_in(1), log_weight=True)
        second = self.second.plan.attend(rest.fold_in(2), log_weight=True)
        output, log_weights = merge_by_logsumexp([first, second])
        return output, log_weights if log_weight else None

    attend_documents = attend_row  # the plans of the parts keep documents apart

    def tiles(self, inputs):
        if self._is_all(inputs.key.shape[2]):
            return Chunked(self.mask_mod).tiles(inputs)
        rest = inputs.restricted(self.first.mask_mod)
        return self.first.plan.tiles(inputs) + self.second.plan.tiles(rest)

    def extra_products(self, inputs):
        if self._is_all(inputs.key.shape[2]):
            return super().extra_products(inputs)
        rest = inputs.restricted(self.first.mask_mod)
        parts = self.first.plan.extra_products(inputs), self.second.plan.extra_products(rest)
        return tuple(map(sum, zip(*parts, strict=True)))

    def keys_per_query(self, num_keys):
        return min(num_keys, sum(p.keys_per_query(num_keys) for p in (self.first, self.second)))

    def _is_all(self, num_keys):
        """Return True if both patterns together compute as many keys as there are."""
        num_keys = num_keys or UNKNOWN_LENGTH
        return self.keys_per_query(num_keys) >= num_keys


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

    def __init__(self, patterns):
        if isinstance(patterns, (str, Pattern)) or not patterns:
            raise ValueError(
                "`patterns` must be a list of patterns, one for each head. "
                f"Received: patterns={patterns!r}."
            )
        self.patterns = tuple(
            refuse_unless_of_positions(p, f"patterns[{n}]") for n, p in enumerate(patterns)
        )

    @property
    def causal(self):
        return all(pattern.causal for pattern in self.patterns)

    def allowed(self, query_positions, key_positions):
        """Return a bool (N, T, S), or (B, N, T, S) for positions of each row."""
        allowed = [p.allowed(query_positions, key_positions) for p in self.patterns]
        if len({tuple(mask.shape) for mask in allowed}) > 1:  # a rule of i or of j alone
            shape = ops.shape(functools.reduce(ops.logical_or, allowed))
            allowed = [ops.broadcast_to(mask, shape) for mask in allowed]
        return ops.stack(allowed, axis=-3)

    def dense_mask_and_bias(self, inputs):
        check_heads(self.patterns, inputs)
        allowed = self.allowed(inputs.query_positions, inputs.key_positions)
        return ops.expand_dims(allowed, 0) if len(allowed.shape) == 3 else allowed, None

    def check(self, score=None, length=None):
        for pattern in self.patterns:
            pattern.check(score, length)

    @functools.cached_property
    def plan(self):
        return ByHead(self.patterns)

    @property
    def kept_keys(self):
        return KeptKeys(*joint_sizes(self.patterns))


class ByHead(Plan):
    """The plan of each pattern for the heads that have it."""

    def __init__(self, patterns):
        super().__init__(None)
        self.patterns = patterns

    def attend_row(self, inputs, log_weight=False):
        check_heads(self.patterns, inputs)
        # A score's weights are those of all heads: such a score computes all heads at once.
        together = inputs.score.has_weights
        results = [None] * len(self.patterns)
        for pattern, heads in self._heads_of_patterns():
            part = inputs.fold_in(heads[0])
            part = part if together else part.heads(heads)
            part_results = pattern.plan.attend(part, log_weight)
            for number, head in enumerate(heads):
                index = head if together else number
                results[head] = [None if x is None else x[:, index] for x in part_results]
        output, log_weights = zip(*results, strict=True)
        return ops.stack(output, axis=1), ops.stack(log_weights, axis=1) if log_weight else None

    attend_documents = attend_row  # the plans of the parts keep documents apart

    def tiles(self, inputs):
        counts = []
        for pattern, heads in self._heads_of_patterns():
            part = inputs if inputs.score.has_weights else inputs.heads(range(len(heads)))
            counts += pattern.plan.tiles(part)
        return counts

    def extra_products(self, inputs):
        parts = [(0, 0)]
        for pattern, heads in self._heads_of_patterns():
            part = inputs if inputs.score.has_weights else inputs.heads(range(len(heads)))
            parts.append(pattern.plan.extra_products(part))
        return tuple(map(sum, zip(*parts, strict=True)))

    def keys_per_query(self, num_keys):
        return max(pattern.keys_per_query(num_keys) for pattern in self.patterns)

    def _heads_of_patterns(self):
        """Return pairs of each different pattern and the list of its heads."""
        return [
            (pattern, [n for n, other in enumerate(self.patterns) if other == pattern])
            for pattern in dict.fromkeys(self.patterns)
        ]


def check_heads(patterns, inputs):
    """Refuse per-head inputs of another number of heads than there are patterns."""
    num_heads = inputs.query.shape[1]
    if num_heads != len(patterns):
        raise ValueError(
            "`patterns` of PerHead must be one for each head. "
            f"Received: {len(patterns)} patterns, {num_heads} heads."
        )


def combine(kind, first, second):
    """Return `kind(first, second)`, for each head of the one that is a `PerHead`."""
    if isinstance(first, PerHead) and isinstance(second, PerHead):
        raise ValueError(
            "Two patterns by head are combined head by head: `PerHead([p & q, ...])`. "
            f"Received: second={second!r}."
        )
    if isinstance(first, PerHead):
        return PerHead([kind(pattern, second) for pattern in first.patterns])
    if isinstance(second, PerHead):
        return PerHead([kind(pattern, first) for pattern in second.patterns])
    return kind(first, second)


COMBINATIONS.update(
    {
        "and": functools.partial(combine, Both),
        "or": functools.partial(combine, Either),
    }
)
