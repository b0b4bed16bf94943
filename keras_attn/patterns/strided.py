"""A window, and keys at multiples of a stride."""

from keras import ops

from keras_attn.attention.strided import attend_strided, strided_tiles
from keras_attn.ops.checks import check_choice, check_sizes
from keras_attn.ops.shapes import ceil_div
from keras_attn.patterns.combined import Either, SameAs
from keras_attn.patterns.local import Local
from keras_attn.patterns.pattern import Pattern
from keras_attn.registry import register


@register
class Strided(SameAs):
    """A query attends to the last `stride` keys, and every `stride`-th key before it.

        "local":  0 <= i - j < stride
        "column": j <= i  and  (i - j) mod stride = 0
        "both":   either, under one softmax

    One factor after the other, in two layers, lets each position reach all before it. Suits data
    with a period of `stride`, such as the rows of an image. Time O(T (stride + T / stride)) per
    head, least at the square root of T; memory O(T). The column factor folds the sequence into
    `stride` columns of their own.

    Use it for long sequences with a period, such as images with rows of a fixed length.

    Args:
        stride: int. The number of keys of a window, and the distance of the other keys.
        factor: "local", "column" or "both".

    Raises:
        ValueError: if `stride` < 1 or `factor` is unknown.

    Example:
        >>> from keras_attn import layers, patterns
        >>> layer = layers.MultiHeadAttention(2, 16, pattern=patterns.Strided(32))

    Differs from the paper: the window holds `stride` keys, as in the authors' code; the paper's
        text has one more.

    Reference: [Child et al., 2019](https://arxiv.org/abs/1904.10509), section 4.3.
    """

    def __init__(self, stride, factor="both"):
        check_sizes(stride=stride)
        check_choice(factor=factor, choices=("local", "column", "both"))
        self.stride = int(stride)
        self.factor = factor
        local, column = Local(self.stride), _Column(self.stride)
        self.same = {"local": local, "column": column, "both": Either(local, column)}[factor]


class _Column(Pattern):
    """The keys at multiples of a stride before the query."""

    causal = True
    supports_segments = True

    def __init__(self, stride):
        self.stride = stride

    def mask_mod(self, i, j):
        distance = i - j
        return ops.logical_and(distance >= 0, distance % self.stride == 0)

    def attend(self, inputs, log_weight=False):
        return attend_strided(inputs, self.stride, log_weight=log_weight)

    def tiles(self, inputs):
        return strided_tiles(inputs, self.stride)

    def keys_per_query(self, num_keys):
        return ceil_div(num_keys, self.stride)

    def decode_keys(self, position, num_keys):
        rows = ops.arange(ceil_div(num_keys, self.stride), dtype="int32")
        return position % self.stride + rows * self.stride
