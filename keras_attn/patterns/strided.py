"""A window, and keys at multiples of a stride."""

import functools

from keras import ops

from keras_attn.attention.plans import BlockLocal, Plan, resize
from keras_attn.ops.checks import check_choice, check_sizes
from keras_attn.ops.shapes import ceil_div, greater, pad, size, sizes, slice_axis
from keras_attn.patterns.combined import Either, SameAs
from keras_attn.patterns.local import Local
from keras_attn.patterns.pattern import KeptKeys, Pattern
from keras_attn.registry import register


@register
class Strided(SameAs, Pattern):
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

    def __init__(self, stride):
        self.stride = stride

    def mask_mod(self, i, j):
        distance = i - j
        return ops.logical_and(distance >= 0, distance % self.stride == 0)

    @functools.cached_property
    def plan(self):
        return Columns(self.mask_mod, self.stride)

    @property
    def kept_keys(self):
        return KeptKeys(positions=self._column_of)

    def _column_of(self, position, num_keys):
        rows = ops.arange(ceil_div(num_keys, self.stride), dtype="int32")
        return position % self.stride + rows * self.stride


class Columns(Plan):
    """Keys at multiples of a stride from the query.

    The sequence is written in rows of `stride`, and each column is a sequence of its own; the T
    queries are the last of S positions. Time O(T S / stride), with a `window` O(T) times its
    length, and memory O(T + S) per head.

    Args:
        mask_mod: function of positions that allows only pairs of a column.
        stride: int.
        window: `Window` of a column, the keys that `mask_mod` reaches; None for causal attention to
            the whole column.
    """

    def __init__(self, mask_mod, stride, window=None):
        super().__init__(mask_mod)
        self.stride, self.window = stride, window

    def attend_row(self, inputs, log_weight=False):
        stride, length, num_keys = self.stride, size(inputs.query, 2), size(inputs.key, 2)
        rows = greater(ceil_div(num_keys, stride), 1)
        first = num_keys - length

        def transpose(x, rows, columns):  # (B, N, rows * columns, H) -> (B, N, columns * rows, H)
            x = ops.reshape(x, (*sizes(x)[:2], rows, columns, x.shape[-1]))
            return ops.reshape(ops.swapaxes(x, 2, 3), (*sizes(x)[:2], columns * rows, x.shape[-1]))

        def fold(x, front=0):
            return transpose(pad(x, front, rows * stride - num_keys), rows, stride)

        positions = fold(inputs.positions_of_keys())[..., 0]
        documents = inputs.documents
        folded = inputs.replace(
            query=fold(inputs.query, first),
            key=fold(inputs.key),
            value=fold(inputs.value),
            query_positions=positions,
            key_positions=positions,
        ).with_key_marks(
            fold(inputs.key_marks())[..., 0],
            None if documents is None else fold(documents.queries, first),
        )
        results = self._blocks(rows, inputs.tile_sizes).attend_row(folded, log_weight)
        return tuple(
            None if x is None else slice_axis(transpose(x, stride, rows), first, length, axis=2)
            for x in results
        )

    def attend_documents(self, inputs, log_weight=False):
        if self.window is not None:
            return super().attend_documents(inputs, log_weight)
        return self.attend_row(inputs, log_weight)

    def _blocks(self, rows, tile_sizes):
        """Return the `BlockLocal` for a sequence whose columns of so many rows are joined."""
        if self.window is None:
            return BlockLocal(lambda i, j: j <= i, rows, repeats=True, spacing=self.stride)
        blocks = self.window.blocks(tile_sizes)
        # A block may end in the next column, which `mask_mod` excludes.
        sizes_of_blocks = blocks.block, blocks.before, blocks.after
        return BlockLocal(self.mask_mod, *sizes_of_blocks, spacing=self.stride)

    def tiles(self, inputs):
        rows = ceil_div(inputs.key.shape[2], self.stride)
        folded = resize(inputs, rows * self.stride, rows * self.stride)
        return self._blocks(rows, inputs.tile_sizes).tiles(folded)

    def keys_per_query(self, num_keys):
        if self.window is None:
            return ceil_div(num_keys, self.stride)
        return self.window.keys_per_query(num_keys)
