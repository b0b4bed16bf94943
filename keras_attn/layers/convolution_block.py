"""A block beside a convolution of its input."""

import math

import keras
from keras import ops

from keras_attn import norms, registry
from keras_attn.feed_forward import PositionMixer
from keras_attn.initializers import redraw
from keras_attn.layers.transformer_block import TransformerBlock
from keras_attn.ops.activations import activate, get_activation
from keras_attn.ops.checks import check_sizes, check_that
from keras_attn.ops.shapes import pad, size, slice_axis


@registry.register
class ConvolutionBlock(TransformerBlock):
    """Add a convolution of a block's input to its output, and normalise the sum.

        y = norm(Block(x) + activation(x * W + b))

    where Block is a `TransformerBlock` and * convolves along the sequence. Padding is zeroed before
    the convolution. Time O(T K D^2 / groups) more than the block, weights K D^2 / groups more.

    Use it as the first block of an encoder, which then knows the words around a token.

    Args:
        attention, feed_forward, residual, dropout: as `TransformerBlock`.
        kernel_size: int. Number of positions K that the convolution sees, an odd one.
        groups: int. Number of groups of features that are convolved apart.
        activation: name or function.
        norm: value of the norm axis.

    Call arguments and returns:
        As `keras_attn.layers.Block`, without a context, a cache, a memory or packed rows.

    Raises:
        ValueError: as `TransformerBlock`; if `kernel_size` is even, `groups` do not divide D, or
            a call has an argument that is left out above.

    Example:
        >>> import keras
        >>> from keras_attn.layers import ConvolutionBlock, FeedForward, MultiHeadAttention
        >>> block = ConvolutionBlock(MultiHeadAttention(2, 8), FeedForward(32))
        >>> block(keras.ops.ones((3, 5, 16))).shape
        TensorShape([3, 5, 16])

    Differs from the paper: which has no convolution; it is in the authors' code of DeBERTa v2.

    Reference: [He et al., 2021](https://arxiv.org/abs/2006.03654); the convolution:
        [the authors' code](https://github.com/microsoft/DeBERTa).
    """

    decided_arguments = ("cross_attention",)
    depends_on_config_only = True
    needs_closing_norm = takes_rows = False

    def __init__(
        self,
        attention,
        feed_forward,
        *,
        kernel_size=3,
        groups=1,
        activation="tanh",
        norm="layer_norm",
        **kwargs,
    ):
        has_context = kwargs.get("cross_attention") is not None
        check_that(not has_context, "left out", cross_attention=kwargs.get("cross_attention"))
        super().__init__(attention, feed_forward, **kwargs)
        self.convolution = Convolution(kernel_size, groups, dtype=self.dtype_policy)
        self.kernel_size, self.groups = kernel_size, groups
        self.activation = get_activation(activation)
        self.norm = norms.get(norm, dtype=self.dtype_policy, name="norm")

    def build(self, x_shape=None, context_shape=None):
        super().build(x_shape, context_shape)
        registry.build_once(self.convolution, x_shape)
        registry.build_once(self.norm, x_shape)

    def apply(self, x, call):
        for name in ("cache", "memory", "segment_ids"):
            if getattr(call, name) is not None:
                raise ValueError(
                    f"`{name}` does not fit a `ConvolutionBlock`, whose convolution reads both "
                    f"neighbours of a position. Received: a call with `{name}`."
                )
        y, extras = super().apply(x, call)
        near = activate(self.activation, self.convolution(x, call.padding_mask))
        return self.norm(y + self.drop(near, training=call.training)), extras


@registry.register
class Convolution(PositionMixer):
    """Convolve along the sequence (B, T, D), with zeros beyond its ends and at padding."""

    causal = False
    weight_axes = {"kernel": (), "bias": ()}

    def __init__(self, kernel_size, groups=1, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        check_sizes(kernel_size=kernel_size, groups=groups)
        check_that(kernel_size % 2 == 1, "an odd number", kernel_size=kernel_size)
        self.kernel_size, self.groups = kernel_size, groups
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, x_shape):
        width = x_shape[-1]
        divides = width % self.groups == 0
        check_that(divides, f"a divisor of the {width} features", groups=self.groups)
        shape = (self.kernel_size, width // self.groups, width)
        self.kernel = self.add_weight(shape, redraw(self.kernel_initializer), name="kernel")
        self.bias = self.add_weight((width,), "zeros", name="bias")

    def call(self, x, padding_mask=None):
        if padding_mask is not None:
            x = ops.where(ops.expand_dims(padding_mask, -1), x, ops.zeros((), x.dtype))
        length, beside, by_group = size(x, 1), self.kernel_size // 2, self.kernel.shape[1]
        x = pad(x, beside, beside, axis=1)
        kernel = ops.reshape(self.kernel, (self.kernel_size, by_group, self.groups, by_group))
        total = 0
        # A sum of products: not every device has a grouped convolution.
        for tap in range(self.kernel_size):
            read = slice_axis(x, tap, length, axis=1)
            read = ops.reshape(read, (-1, length, self.groups, by_group))
            total = total + ops.einsum("btgi,igo->btgo", read, ops.cast(kernel[tap], x.dtype))
        total = ops.reshape(total, (-1, length, self.groups * by_group))
        return total + ops.cast(self.bias, x.dtype)

    def call_products(self, output_shape, x, **others):
        """Return the multiply-adds of a call for the shape of `x`."""
        return math.prod(x) * self.kernel_size * x[-1] // self.groups

    def compute_output_shape(self, x_shape):
        return x_shape
