"""What one of two patterns allows."""

from keras import ops

from keras_attn.attention.softmax import merge
from keras_attn.ops.shapes import UNKNOWN_LENGTH
from keras_attn.patterns.combined import Combined
from keras_attn.registry import register


@register
class Either(Combined):
    """`p | q`: a query meets the keys that at least one pattern allows, under one softmax.

        allowed(i, j) = p.allowed(i, j) or q.allowed(i, j)

    Each pattern's plan computes its own pairs, the second without those of the first, and the two
    are merged into the exact softmax over the union. Time and memory the sum of both plans.

    Args:
        first, second: patterns.

    Raises:
        ValueError: if one of them is not a function of positions alone.

    Example:
        >>> from keras_attn.patterns import BlockLocal1D, Local
        >>> Local(3) | BlockLocal1D(8, lookback=0)
        Either(first=Local(window=3, causal=True), second=BlockLocal1D(block_length=8, lookback=0))

    Differs from the paper: none; a "merged" head of the paper.

    Reference: [Child et al., 2019](https://arxiv.org/abs/1904.10509), section 4.3, eq. 8.
    """

    @property
    def causal(self):
        return self.first.causal and self.second.causal

    def mask_mod(self, i, j):
        return ops.logical_or(self.first.mask_mod(i, j), self.second.mask_mod(i, j))

    def attend(self, operands, log_weight=False):
        num_keys = operands.key.shape[2] or UNKNOWN_LENGTH
        if self.keys_per_query(num_keys) >= num_keys:
            return super().attend(operands, log_weight)
        rest = operands.restricted(lambda i, j: ops.logical_not(self.first.mask_mod(i, j)))
        output, log_weights = merge(
            [
                self.first.attend(operands.part(1), log_weight=True),
                self.second.attend(rest.part(2), log_weight=True),
            ]
        )
        return output, log_weights if log_weight else None

    def keys_per_query(self, num_keys):
        return min(num_keys, sum(p.keys_per_query(num_keys) for p in (self.first, self.second)))

    def cache_size(self):
        kept = self.first.cache_size(), self.second.cache_size()
        return None if None in kept else max(kept)

    def decode_keys(self, position, num_keys):
        first, second = (p.decode_keys(position, num_keys) for p in (self.first, self.second))
        if first is None or second is None:
            return None
        # What the first meets is taken from its own candidates, so that no key comes twice.
        first = ops.where(self.first.mask_mod(position, first), first, -1)
        second = ops.where(self.first.mask_mod(position, second), -1, second)
        return ops.concatenate([first, second])
