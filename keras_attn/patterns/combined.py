"""Patterns made of two patterns: intersection and union."""

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

    def check_length(self, length):
        self.same.check_length(length)

    def attend(self, inputs, log_weight=False):
        return self.same.attend_blockwise(inputs, log_weight)

    def tiles(self, inputs):
        return self.same.tiles(inputs)

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
        self.first, self.second = of_positions(first, "first"), of_positions(second, "second")

    def check_length(self, length):
        for pattern in (self.first, self.second):
            pattern.check_length(length)


def of_positions(identifier, name):
    """Return the pattern for a name or an object; refuse one that reads more than positions."""
    pattern = Pattern.get(identifier, name)
    if pattern.differs_by_head:
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

    supports_segments = True

    @property
    def causal(self):
        return self.first.causal or self.second.causal

    def mask_mod(self, i, j):
        return ops.logical_and(self.first.mask_mod(i, j), self.second.mask_mod(i, j))

    def attend(self, inputs, log_weight=False):
        sparse, other = self._sparser_first(inputs.key.shape[2])
        return sparse.attend_blockwise(inputs.restricted(other.mask_mod), log_weight)

    def tiles(self, inputs):
        return self._sparser_first(inputs.key.shape[2])[0].tiles(inputs)

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

    def tiles(self, inputs):
        num_keys = inputs.key.shape[2]
        if self.keys_per_query(num_keys) >= num_keys:
            return super().tiles(inputs)
        return self.first.tiles(inputs) + self.second.tiles(inputs)

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


Pattern.combinations.update({"and": Both, "or": Either})
