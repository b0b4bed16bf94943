"""The parallel Transformer block: attention and feed-forward read the same input."""

from keras_attn import registry
from keras_attn.backend.replicas import keep_rows
from keras_attn.layers.transformer_block import TransformerBlock


@registry.register
class ParallelBlock(TransformerBlock):
    """Add the outputs of attention and of a feed-forward network that read the same input.

        y = x + Attention(norm(x)) + FFN(norm(x)),      one norm for both
        y = x + Attention(norm_1(x)) + FFN(norm_2(x)),  with `shared_norm=False`

    The sublayers do not wait for each other, so an accelerator may compute them at once. With
    another residual R, y = R_2(R_1(x, Attention), FFN), where both sublayers read x. Cost: that of
    a `TransformerBlock`, without one norm if it is shared.

    Use it for large decoders; GPT-J, PaLM and Falcon-7B have one norm, GPT-NeoX and Falcon-40B two.

    Args:
        attention, feed_forward, dropout: as `TransformerBlock`.
        residual: name or object of the residual axis.
        shared_norm: bool. If True, one residual, with its norm, serves both sublayers; else each
            has a copy of its own.

    Call arguments and returns:
        As `keras_attn.layers.Block`, without a context.

    Raises:
        ValueError: as `TransformerBlock`, and if `cross_attention` is given.

    Example:
        >>> import keras
        >>> from keras_attn.layers import FeedForward, MultiHeadAttention, ParallelBlock
        >>> block = ParallelBlock(MultiHeadAttention(2, 8), FeedForward(32))
        >>> block(keras.ops.ones((3, 5, 16))).shape
        TensorShape([3, 5, 16])

    Differs from the paper: none.

    Reference: [Chowdhery et al., 2022](https://arxiv.org/abs/2204.02311), section 2; two norms:
        [Black et al., 2022](https://arxiv.org/abs/2204.06745), section 2.1.
    """

    decided_arguments = ("cross_attention",)

    def __init__(self, attention, feed_forward, *, residual="pre_norm", shared_norm=True, **kwargs):
        if kwargs.get("cross_attention") is not None:
            raise ValueError(
                "`cross_attention` does not fit a `ParallelBlock`; use a `TransformerBlock`, which "
                f"has it. Received: cross_attention={kwargs['cross_attention']!r}."
            )
        self.shared_norm = bool(shared_norm)  # read while the base class makes the residuals
        super().__init__(attention, feed_forward, residual=residual, **kwargs)

    def _residual_of(self, sublayer, residual):
        if self.shared_norm and sublayer == "feed_forward":
            return self.attention_residual
        return super()._residual_of(sublayer, residual)

    def apply(self, x, call):
        steps, extras = self.sublayers(x, call)
        (first, attend), (second, feed_forward) = steps
        read = first.before(x)
        y = keep_rows(first.after(x, attend(read, call.context)))
        read = read if second is first else second.before(x)
        return keep_rows(second.after(y, feed_forward(read, call.context))), extras
