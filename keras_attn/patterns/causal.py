"""Causal attention."""

from keras_attn.attention.chunked import attend_chunked, chunked_tiles
from keras_attn.attention.reach import attend_documents
from keras_attn.ops.shapes import size
from keras_attn.patterns.pattern import Pattern
from keras_attn.registry import register


@register
class Causal(Pattern):
    """A query attends to the keys at its own position and before.

        allowed(i, j) = (j <= i)

    Time O(T S) per head; memory too where the matrix of scores is made, else O(T + S). Positions
    decide, not indices: with more keys than queries (a memory, a cache) the queries are the last
    positions.

    Use it for language models and decoders, which must not read the future.

    Example:
        >>> import keras_attn
        >>> keras_attn.layers.MultiHeadAttention(8, 64, pattern="causal").pattern
        Causal()

    Differs from the paper: none.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2.3.
    """

    causal = True
    simple_rule = "causal"
    supports_segments = True

    def mask_mod(self, i, j):
        return j <= i

    def prefers_blockwise(self, length, num_keys, short=512, long=2048):
        # As many queries as keys, of which it leaves out nearly half of the pairs.
        is_square = num_keys is not None and length == num_keys >= short
        return is_square or super().prefers_blockwise(length, num_keys, short, long)

    def attend(self, inputs, log_weight=False):
        earlier = size(inputs.key, 2) - size(inputs.query, 2)

        def whole():
            return attend_chunked(
                inputs, self.mask_mod, visible=lambda end: earlier + end, log_weight=log_weight
            )

        if not inputs.query_segments:
            return whole()
        return attend_documents(inputs, self.mask_mod, True, whole, log_weight)

    def tiles(self, inputs):
        earlier = inputs.key.shape[2] - inputs.query.shape[2]
        return chunked_tiles(inputs, lambda end: earlier + end)


def make_causal(pattern):
    """Return a pattern without the keys after the query, `pattern & Causal()`."""
    if pattern.causal:
        return pattern
    return Causal() if pattern.simple_rule == "full" else pattern & Causal()
