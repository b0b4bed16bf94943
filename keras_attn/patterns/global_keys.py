"""The first positions, which attend to all keys and to which all queries attend."""

import functools

from keras import ops

from keras_attn.attention.inputs import first_positions
from keras_attn.attention.plans import Chunked, FirstKeys, replace_first_queries, resize
from keras_attn.ops.checks import check_sizes
from keras_attn.ops.shapes import lesser, size, slice_axis
from keras_attn.patterns.pattern import KeptKeys, Pattern
from keras_attn.registry import register


@register
class Global(Pattern):
    """The first positions attend to all keys, and all queries attend to them.

        allowed(i, j) = (i < count  or  j < count)
        allowed(i, j) = (j < count  and  j <= i)        causal

    Joined to a window it is Longformer's pattern, `Local(129, causal=False) | Global(16)`, and with
    random blocks BigBird's, `Local(97, causal=False) | Global(64) | Random(64, 3, 4096)`. Put
    `Local` first in such a union, since the later patterns test each pair for those before. Put a
    question, or other positions that need the whole text, first in the sequence. Time
    O((T + S) count) and memory O(T + S) per head. If causal, a cache keeps the first `count` keys.

    Use it for long texts in which a few positions summarise the whole.

    Args:
        count: int. Number of first positions; 0 allows no pair.
        causal: bool. If True, queries attend to the first positions up to their own only.

    Raises:
        ValueError: if `count` < 0.

    Example:
        >>> from keras_attn import layers, patterns
        >>> longformer = patterns.Local(129, causal=False) | patterns.Global(16)
        >>> layer = layers.MultiHeadAttention(8, 64, pattern=longformer)

    Differs from the paper: global positions are the first of the sequence, where the paper may
        choose them in each call; `layers.GlobalAttention` gives them second projections.

    Reference: [Beltagy et al., 2020](https://arxiv.org/abs/2004.05150), section 3.1;
        [Zaheer et al., 2020](https://arxiv.org/abs/2007.14062), section 2.
    """

    def __init__(self, count, causal=False):
        check_sizes(least=0, count=count)
        self.count = int(count)
        self.causal = bool(causal)

    def mask_mod(self, i, j):
        if self.causal:
            return ops.logical_and(j < self.count, j <= i)
        return ops.logical_or(i < self.count, j < self.count)

    @functools.cached_property
    def plan(self):
        if self.causal or self.count == 0:
            return FirstKeys(self.mask_mod, self.count)
        return FirstKeysAndQueries(self.mask_mod, self.count)

    @property
    def kept_keys(self):
        if not self.causal:
            return KeptKeys()
        # One slot more, for the last key, which need not be one of the first.
        return KeptKeys(self.count + 1, self.count, self._first_keys)

    def _first_keys(self, position, num_keys):
        return ops.arange(self.count, dtype="int32")


class FirstKeysAndQueries(FirstKeys):
    """The first `count` keys for all queries, and all keys for the first `count` queries.

    Time O((T + S) count) and memory O(T + S) per head.
    """

    def attend_row(self, inputs, log_weight=False):
        results = super().attend_row(inputs, log_weight)
        count = lesser(self.count, size(inputs.query, 2))
        first = inputs.fold_in(7).replace(
            query=slice_axis(inputs.query, 0, count, axis=2),
            query_positions=first_positions(inputs.query_positions, count),
        )
        first_results = Chunked(None).attend_row(first, log_weight)
        return tuple(
            x if x is None else replace_first_queries(x, rows, first.query_positions, self.count)
            for x, rows in zip(results, first_results, strict=True)
        )

    def tiles(self, inputs):
        first = resize(inputs, length=min(self.count, inputs.query.shape[2]))
        return super().tiles(inputs) + Chunked(None).tiles(first)

    def keys_per_query(self, num_keys):
        # The rows of the first queries cost as much as the others' columns.
        return min(num_keys, 2 * self.count)
