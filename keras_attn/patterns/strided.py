"""A window, and keys at multiples of a stride."""

from keras import ops

from keras_attn.attention.strided import attend_strided
from keras_attn.ops.checks import check_choice, check_sizes
from keras_attn.ops.shapes import ceil_div
from keras_attn.patterns.combined import Either
from keras_attn.patterns.local import Local
from keras_attn.patterns.pattern import Pattern
from keras_attn.registry import register


@register
class Strided(Pattern):
    """A query meets the last `stride` keys, and every `stride`-th key before it.

        "local":  0 <= i - j < stride
        "column": j <= i  and  (i - j) mod stride = 0
        "both":   either, under one softmax

    One factor after the other, in two layers, lets each position reach all before it. Suits data
    with a period of `stride`, such as the rows of an image. Time O(T (stride + T / stride)) per
    head, least at the square root of T; memory O(T). The column factor folds the sequence into
    `stride` columns of their own.

    Args:
        stride: int. The number of keys of a window, and the distance of the other keys.
        factor: "local", "column" or "both".

    Raises:
        ValueError: if `stride` < 1 or `factor` is unknown.

    Example:
        >>> import keras_attn
        >>> layer = keras_attn.layers.MultiHeadAttention(
        ...     2, 16, pattern=keras_attn.patterns.Strided(32))

    Differs from the paper: the window holds `stride` keys, as in the authors' code; the paper's
        text has one more.

    Reference: [Child et al., 2019](https://arxiv.org/abs/1904.10509), section 4.3.
    """

    causal = True

    def __init__(self, stride, factor="both"):
        check_sizes(stride=stride)
        check_choice(factor=factor, choices=("local", "column", "both"))
        self.stride = int(stride)
        self.factor = factor

    def mask_mod(self, i, j):
        distance = i - j
        near = distance < self.stride
        column = distance % self.stride == 0
        met = {"local": near, "column": column}.get(self.factor, ops.logical_or(near, column))
        return ops.logical_and(distance >= 0, met)

    def attend(self, inputs, log_weight=False):
        if self.factor == "local":
            return Local(self.stride).attend(inputs, log_weight)
        if self.factor == "column":
            return attend_strided(inputs, self.stride, log_weight=log_weight)
        return self._union().attend(inputs, log_weight)

    def keys_per_query(self, num_keys):
        column = -(-num_keys // self.stride)
        local = Local(self.stride).keys_per_query(num_keys)
        both = min(num_keys, column + local)
        return {"local": local, "column": column}.get(self.factor, both)

    def cache_size(self):
        return self.stride if self.factor == "local" else None

    def decode_keys(self, position, num_keys):
        if self.factor == "local":
            return Local(self.stride).decode_keys(position, num_keys)
        if self.factor == "column":
            rows = ops.arange(ceil_div(num_keys, self.stride), dtype="int32")
            return position % self.stride + rows * self.stride
        return self._union().decode_keys(position, num_keys)

    def _union(self):
        return Either(Local(self.stride), Strided(self.stride, "column"))

    def get_config(self):
        return {"stride": self.stride, "factor": self.factor}
