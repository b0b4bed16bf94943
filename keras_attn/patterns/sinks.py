"""A window and the first keys of a sequence, for streams without end."""

import functools

from keras import ops

from keras_attn.attention.inputs import positions_by_head
from keras_attn.attention.plans import FirstKeys, Plan
from keras_attn.attention.softmax import (
    at_least_float32,
    attend_logits_with_logsumexp,
    dense_arguments,
    merge_by_logsumexp,
)
from keras_attn.ops.checks import check_sizes
from keras_attn.patterns.combined import SameAs
from keras_attn.patterns.global_keys import Global
from keras_attn.patterns.local import Local
from keras_attn.patterns.pattern import Pattern
from keras_attn.registry import register


@register
class Sinks(SameAs, Pattern):
    """A query attends to a window and to the first keys, which never seem farther than the cache.

        allowed(i, j) = (0 <= i - j < window)  or  (j < count and j <= i)
        distance(i, j) = min(i, count + window - 1) - j     to the first keys, j < count
        distance(i, j) = i - j                              to others

    Scores, biases and `Rotary` get these distances: those of positions counted within the cache,
    which holds the first `count` keys and the last `window`. No distance exceeds that of a text
    of `count + window` tokens, so a model reads a stream of any length. With true distances the
    pattern is `Local(window) | Global(count, causal=True)`. Keys keep the angles of their own
    positions, and those of `Rotary` are float32: at position p they are rounded by up to p / 2^24
    radians, 0.06 at a million, where logits lose digits (`recipes.benchmarks.streaming`). Time
    O(T (window + count)) and memory O(T) per head; packed rows take the whole matrix of scores.

    Use it for models that read or write a stream without end in constant memory.

    Args:
        count: int. Number of first keys.
        window: int. Number of last keys, the query's own included.

    Raises:
        ValueError: if an argument is below 1, or a call has a position of heads that cannot
            be moved; `Rotary` can.

    Example:
        >>> from keras_attn import layers, patterns
        >>> sinks = patterns.Sinks(4, window=252)
        >>> layer = layers.MultiHeadAttention(8, 64, pattern=sinks, position="rotary")

    Differs from the paper: keys keep their positions in the cache, and the query is turned back for
        the first keys, which gives the same logits.

    Reference: [Xiao et al., 2023](https://arxiv.org/abs/2309.17453), section 3.2.
    """

    # Distances depend on more than the pairs: `&`, `|` and `PerHead` would lose that.
    is_of_positions = False

    def __init__(self, count, window):
        check_sizes(count=count, window=window)
        self.count = int(count)
        self.window = int(window)
        self.same = Local(self.window) | Global(self.count, causal=True)

    def for_call(self, inputs, layer_input, position):
        return _SinksOfCall(self, position)

    def dense_mask_and_bias(self, inputs):
        return self.for_call(inputs, None, None).dense_mask_and_bias(inputs)

    @functools.cached_property
    def plan(self):
        return WindowAndSinks(self, None)


class _SinksOfCall(SameAs, Pattern):
    """The pattern of one call, with the position that the layer has applied to the heads."""

    is_of_positions = False

    def __init__(self, same, position):
        self.same, self.position = same, position

    def dense_mask_and_bias(self, inputs):
        mask, _ = self.same.same.dense_mask_and_bias(inputs)
        if self.position is None and not inputs.score.uses_positions:
            return mask, None
        near, own = _logits(self.plan.moved(inputs)), _logits(inputs)
        is_first = ops.expand_dims(positions_by_head(inputs.key_positions), -2) < self.same.count
        return mask, ops.where(is_first, near - own, ops.zeros_like(own))

    @functools.cached_property
    def plan(self):
        return WindowAndSinks(self.same, self.position)


class WindowAndSinks(Plan):
    """The window, and the first keys by distances within a cache."""

    def __init__(self, pattern, position):
        super().__init__(pattern.mask_mod)
        self.pattern, self.position = pattern, position
        self.window = pattern.same.first.plan
        # A moved query is in reach of the same first keys by its window as before.
        self.first = FirstKeys(lambda i, j: i - j >= pattern.window, pattern.count)

    def attend_row(self, inputs, log_weight=False):
        window = self.window.attend(inputs.fold_in(1), log_weight=True)
        first = self.first.attend(self.moved(inputs.fold_in(2)), log_weight=True)
        output, log_weights = merge_by_logsumexp([window, first])
        return output, log_weights if log_weight else None

    # Not `attend_documents`, which gets positions in the row: these distances are in documents.
    def attend(self, inputs, log_weight=False):
        if inputs.documents is None:
            return self.attend_row(inputs, log_weight)
        # Each document has first keys of its own: from the matrix of scores.
        pattern = self.pattern.for_call(inputs, None, self.position)
        output, log_weights = attend_logits_with_logsumexp(*dense_arguments(inputs, pattern))
        return output, log_weights if log_weight else None

    def moved(self, inputs):
        """Return the inputs with queries at the last position of the cache at most."""
        i = positions_by_head(inputs.query_positions)
        nearest = ops.minimum(i, self.pattern.count + self.pattern.window - 1)
        query = inputs.query
        if self.position is not None:
            query = self.position.move(query, nearest - i)
        return inputs.replace(query=query, query_positions=nearest)

    def tiles(self, inputs):
        return self.window.tiles(inputs) + self.first.tiles(inputs)

    def keys_per_query(self, num_keys):
        return self.pattern.same.keys_per_query(num_keys)


def _logits(inputs):
    positions = {"query_positions": inputs.query_positions, "key_positions": inputs.key_positions}
    return at_least_float32(inputs.score(inputs.query, inputs.key, **positions))
