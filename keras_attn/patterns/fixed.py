"""Blocks, and a few summary keys of each."""

import functools

from keras import ops

from keras_attn.attention.inputs import positions_by_head
from keras_attn.attention.plans import Chunked, Plan, resize
from keras_attn.ops.checks import check_choice, check_sizes
from keras_attn.ops.shapes import ceil_div, lesser, pad, size, sizes, slice_axis
from keras_attn.ops.sorting import permute, row_starts, sort_order
from keras_attn.patterns.block_local_1d import BlockLocal1D
from keras_attn.patterns.combined import Either, SameAs
from keras_attn.patterns.pattern import KeptKeys, Pattern
from keras_attn.registry import register


@register
class Fixed(SameAs, Pattern):
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

    def __init__(self, stride, summary):
        self.stride = stride
        self.summary = summary

    def mask_mod(self, i, j):
        return ops.logical_and(j <= i, j % self.stride >= self.stride - self.summary)

    @functools.cached_property
    def plan(self):
        return Summaries(self.mask_mod, self.stride, self.summary)

    @property
    def kept_keys(self):
        return KeptKeys(positions=self._summaries_of)

    def _summaries_of(self, position, num_keys):
        blocks = ops.expand_dims(ops.arange(ceil_div(num_keys, self.stride), dtype="int32"), 1)
        within = ops.arange(self.stride - self.summary, self.stride, dtype="int32")
        return ops.reshape(blocks * self.stride + within, (-1,))


class Summaries(Plan):
    """The last `summary` keys of each block of `stride`.

    Time O(T S summary / stride) and memory O(T + S) per head.
    """

    def __init__(self, mask_mod, stride, summary):
        super().__init__(mask_mod)
        self.stride, self.summary = stride, summary

    def attend_row(self, inputs, log_weight=False):
        num_keys = size(inputs.key, 2)
        blocks = ceil_div(num_keys, self.stride)

        def gather(x):  # (B, N, S, H) -> (B, N, blocks * summary, H)
            x = pad(x, 0, blocks * self.stride - num_keys)
            x = ops.reshape(x, (*sizes(x)[:2], blocks, self.stride, x.shape[-1]))
            x = slice_axis(x, self.stride - self.summary, self.summary, axis=3)
            return ops.reshape(x, (*sizes(x)[:2], blocks * self.summary, x.shape[-1]))

        summaries = inputs.replace(
            key=gather(inputs.key),
            value=gather(inputs.value),
            query_positions=positions_by_head(inputs.query_positions),
            key_positions=gather(inputs.positions_of_keys())[..., 0],
            key_mask=gather(inputs.key_marks())[..., 0],
        )
        return self._chunked(inputs).attend_row(summaries, log_weight)

    def attend_documents(self, inputs, log_weight=False):
        """Compute `attend` for packed rows.

        Summary keys come first, in their order, then some others, which are masked. The documents
        of a row have no more summary keys than one document of its length.
        """
        num_keys = size(inputs.key, 2)
        visible = self._visible(inputs)
        count = lesser(visible(size(inputs.query, 2)), num_keys)
        documents = inputs.key_marks()  # (B, 1, S, 1)
        positions = inputs.positions_of_keys() - documents + 1
        is_early = positions % self.stride < self.stride - self.summary
        is_other = ops.logical_or(documents == 0, is_early)[..., 0]
        order, inverse = sort_order(ops.cast(is_other, "int32"))
        shape = sizes(inputs.key)[:3]
        rows, inverse_rows = (
            ops.broadcast_to(x, shape) + row_starts(inputs.key) for x in (order, inverse)
        )
        documents = ops.take_along_axis(ops.where(is_other, 0, documents[..., 0]), order, axis=2)
        summaries = inputs.replace(
            key=slice_axis(permute(inputs.key, rows, inverse_rows), 0, count, axis=2),
            value=slice_axis(permute(inputs.value, rows, inverse_rows), 0, count, axis=2),
            query_positions=positions_by_head(inputs.query_positions),
            key_positions=slice_axis(order, 0, count, axis=2),
        ).with_key_marks(slice_axis(documents, 0, count, axis=2))
        plan = Chunked(self.mask_mod, visible=lambda end: lesser(visible(end), num_keys))
        return plan.attend_row(summaries, log_weight)

    def tiles(self, inputs):
        num_summaries = ceil_div(inputs.key.shape[2], self.stride) * self.summary
        counts = self._chunked(inputs).tiles(resize(inputs, num_keys=num_summaries))
        return [tiles._replace(num_distances=None) for tiles in counts]

    def keys_per_query(self, num_keys):
        return ceil_div(num_keys, self.stride) * self.summary

    def _chunked(self, inputs):
        return Chunked(self.mask_mod, visible=self._visible(inputs))

    def _visible(self, inputs):
        """Return how many summary keys the first n queries reach, as a function of n."""
        earlier = size(inputs.key, 2) - size(inputs.query, 2)
        return lambda end: ceil_div(earlier + end, self.stride) * self.summary
