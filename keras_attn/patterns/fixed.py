"""Blocks, and a few summary keys of each."""

from keras import ops

from keras_attn.attention.fixed import attend_fixed, fixed_tiles
from keras_attn.ops.checks import check_choice, check_sizes
from keras_attn.ops.shapes import ceil_div
from keras_attn.patterns.block_local_1d import BlockLocal1D
from keras_attn.patterns.combined import Either, SameAs
from keras_attn.patterns.pattern import Pattern
from keras_attn.registry import register


@register
class Fixed(SameAs):
    """A query attends to the keys of its own block, and the last few keys of every block.

        "block":   j <= i  and  floor(j / stride) = floor(i / stride)
        "summary": j <= i  and  j mod stride >= stride - summary
        "both":    either, under one softmax

    A block's last positions gather what is in it for all that follow. The authors use it for data
    without a period, such as text. Time O(T (stride + T summary / stride)) and memory O(T) per
    head. With "summary" alone, the first queries attend to no key, and attention is zero there.
    With "block" alone, no query attends to an earlier block, and the first one of a block attends
    to itself only.

    Use it for long text, whose blocks can be summarised by their last positions.

    Args:
        stride: int. Length of the blocks, which start at position 0.
        summary: int. Number of summary keys at the end of each block.
        factor: "block", "summary" or "both".

    Raises:
        ValueError: if a size is below 1, `summary` > `stride` or `factor` is unknown.

    Example:
        >>> from keras_attn import layers, patterns
        >>> layer = layers.MultiHeadAttention(8, 64, pattern=patterns.Fixed(128, summary=8))

    Differs from the paper: no key after the query, which the formula leaves unsaid; all heads
        share the same summary keys (`PerHead` and `|` make others).

    Reference: [Child et al., 2019](https://arxiv.org/abs/1904.10509), section 4.3.
    """

    def __init__(self, stride, summary, factor="both"):
        check_sizes(stride=stride, summary=summary)
        if summary > stride:
            raise ValueError(
                f"`summary` must be at most `stride`. Received: summary={summary}, stride={stride}."
            )
        check_choice(factor=factor, choices=("block", "summary", "both"))
        self.stride = int(stride)
        self.summary = int(summary)
        self.factor = factor
        block, last = BlockLocal1D(self.stride, lookback=0), _Summary(self.stride, self.summary)
        self.same = {"block": block, "summary": last, "both": Either(block, last)}[factor]


class _Summary(Pattern):
    """The last keys of every block, up to the query."""

    causal = True
    supports_segments = True

    def __init__(self, stride, summary):
        self.stride = stride
        self.summary = summary

    def mask_mod(self, i, j):
        return ops.logical_and(j <= i, j % self.stride >= self.stride - self.summary)

    def attend(self, inputs, log_weight=False):
        return attend_fixed(inputs, self.mask_mod, self.stride, self.summary, log_weight=log_weight)

    def tiles(self, inputs):
        return fixed_tiles(inputs, self.stride, self.summary)

    def keys_per_query(self, num_keys):
        return ceil_div(num_keys, self.stride) * self.summary

    def decode_keys(self, position, num_keys):
        blocks = ops.arange(ceil_div(num_keys, self.stride), dtype="int32")[:, None]
        within = ops.arange(self.stride - self.summary, self.stride, dtype="int32")
        return ops.reshape(blocks * self.stride + within, (-1,))
