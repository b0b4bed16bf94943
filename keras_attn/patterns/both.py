"""What two patterns both allow."""

from keras import ops

from keras_attn.ops.shapes import UNKNOWN_LENGTH
from keras_attn.patterns.combined import Combined
from keras_attn.registry import register


@register
class Both(Combined):
    """`p & q`: a query meets the keys that both patterns allow.

        allowed(i, j) = p.allowed(i, j) and q.allowed(i, j)

    Computed by the plan of the pattern that leaves out more, which also forbids what the other
    does. Time and memory those of that plan.

    Args:
        first, second: patterns.

    Raises:
        ValueError: if one of them is not a function of positions alone.

    Example:
        >>> from keras_attn.patterns import Causal, Local
        >>> Local(3, causal=False) & Causal()
        Both(first=Local(window=3, causal=False), second=Causal())

    Differs from the paper: none; papers write the intersection of two sets of keys.

    Reference: [Child et al., 2019](https://arxiv.org/abs/1904.10509), section 4.2.
    """

    @property
    def causal(self):
        return self.first.causal or self.second.causal

    def mask_mod(self, i, j):
        return ops.logical_and(self.first.mask_mod(i, j), self.second.mask_mod(i, j))

    def attend(self, operands, log_weight=False):
        sparse, other = self._sparser_first(operands.key.shape[2])
        return sparse.attend(operands.restricted(other.mask_mod), log_weight)

    def keys_per_query(self, num_keys):
        return min(p.keys_per_query(num_keys) for p in (self.first, self.second))

    def cache_size(self):
        kept = (pattern.cache_size() for pattern in (self.first, self.second))
        return min((count for count in kept if count is not None), default=None)

    def decode_keys(self, position, num_keys):
        for pattern in self._sparser_first(num_keys if isinstance(num_keys, int) else None):
            positions = pattern.decode_keys(position, num_keys)
            if positions is not None:
                return positions
        return None

    def _sparser_first(self, num_keys):
        return sorted(
            (self.first, self.second), key=lambda p: p.keys_per_query(num_keys or UNKNOWN_LENGTH)
        )
