"""The block of PatchTST: attention over the patches of a channel, then over channels."""

from functools import partial

from keras import ops

from keras_attn import registry
from keras_attn.layers.transformer_block import TransformerBlock
from keras_attn.ops.checks import check_sizes, check_that
from keras_attn.ops.shapes import size


@registry.register
class SeriesBlock(TransformerBlock):
    """Attention over the patches of each channel, then optionally over channels, then feed-forward.

        x = R_1(x, Attention over n),   x = R_2(x, Attention over C),   x = R_3(x, FFN(x))

    A row of x is one channel of one series. Both attentions have the same weights. A stack of such
    blocks ends without a norm, whatever the residual. Cost: that of a `TransformerBlock`, with
    `num_channels` O(n C^2 D) more.

    Use it for encoders of series with separate channels.

    Args:
        attention, feed_forward, residual, dropout: as `TransformerBlock`.
        num_channels: int. Number C of channels, which attend to each other at each patch; their
            rows are neighbours. None for channels that do not attend to each other.

    Call arguments and returns:
        As `keras_attn.layers.Block`, for x (B C, n, D), without a context, a memory or a cache.

    Raises:
        ValueError: as `TransformerBlock`, and if `num_channels` is below 1.

    Example:
        >>> import keras
        >>> from keras_attn.layers import FeedForward, MultiHeadAttention, SeriesBlock
        >>> block = SeriesBlock(MultiHeadAttention(2, 8), FeedForward(32), num_channels=3)
        >>> block(keras.ops.ones((2 * 3, 5, 16))).shape
        TensorShape([6, 5, 16])

    Differs from the paper: attention over channels, as in transformers.

    Reference: [Nie et al., 2023](https://arxiv.org/abs/2211.14730), section 3.1.
    """

    decided_arguments = ("cross_attention",)
    needs_closing_norm = False

    def __init__(self, attention, feed_forward, *, num_channels=None, **kwargs):
        has_context = kwargs.get("cross_attention") is not None
        check_that(not has_context, "left out", cross_attention=kwargs.get("cross_attention"))
        if num_channels is not None:
            check_sizes(num_channels=num_channels)
        super().__init__(attention, feed_forward, **kwargs)
        self.num_channels = num_channels
        self.channel_residual = None
        if num_channels is not None:
            self.channel_residual = self._residual_of("channel", self.residual)

    def build(self, x_shape=None, context_shape=None):
        super().build(x_shape, context_shape)
        if self.channel_residual is not None:
            registry.build_once(self.channel_residual, x_shape, x_shape)

    def sublayers(self, x, call):
        steps, extras = super().sublayers(x, call)
        if self.num_channels is not None:
            step = self.channel_residual, partial(self._attend_over_channels, call)
            steps = [*steps[:-1], step, steps[-1]]
        return steps, extras

    def _attend_over_channels(self, call, x, context):
        channels, mask = self.num_channels, call.padding_mask
        count, width = size(x, 1), x.shape[2]

        def swap(x, first, second):
            """Return (B second, first, ...) for (B first, second, ...)."""
            x = ops.reshape(x, (-1, first, second, *x.shape[2:]))
            x = ops.transpose(x, (0, 2, 1, *range(3, len(x.shape))))
            return ops.reshape(x, (-1, first, *x.shape[3:]))

        across = swap(x, channels, count)  # (B n, C, D)
        mask = None if mask is None else swap(mask, channels, count)
        y = self.attention(across, across, value_mask=mask, training=call.training)
        y = ops.reshape(swap(y, count, channels), (-1, count, width))
        return self._dropped("attention", y, x, call)
