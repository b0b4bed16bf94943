"""Separable convolutions in the place of a feed-forward network."""

import math

import keras
from keras import ops

from keras_attn import registry
from keras_attn.attention.cache import add_slots
from keras_attn.attention.inputs import join_masks, keras_mask
from keras_attn.attention.positions import slots_at_distance
from keras_attn.initializers import redraw
from keras_attn.ops.activations import activate, get_activation
from keras_attn.ops.checks import check_rates, check_shape, check_sizes, check_that
from keras_attn.ops.dropout import Dropout
from keras_attn.ops.images import integers
from keras_attn.ops.shapes import flatten_rows, pad, size, slice_axis


class PositionMixer(registry.MaskedLayer):
    """Base class of feed-forward layers whose output at a position depends on other positions.

    `TransformerBlock` calls such a layer with `padding_mask`; in decoding also with
    `attention_mask`, `query_positions`, `key_positions` and a `cache`, which is then returned after
    the output. Models refuse such layers in packed rows, and segment memories in their blocks.
    """

    takes_padding_mask = True

    def initial_cache(self, batch_size, max_length):
        """Return an empty cache of `max_length` positions, or one that grows if that is None."""
        raise ValueError(f"This layer cannot decode with a cache. Received: {type(self).__name__}.")


@registry.register
class SeparableConvTransition(PositionMixer):
    """Two separable convolutions along the sequence, instead of a feed-forward network.

        Transition(x) = activation(x * D_1 W_1 + b_1) * D_2 W_2 + b_2

    where * D_k convolves each channel by itself, and W_k mixes the channels of a position. Padding
    is zeroed before each convolution, so it has no influence. Time O(T D F), memory O(K T F): a
    convolution of K positions is the sum of K products.

    As `feed_forward` of a `TransformerBlock` it gets the block's padding mask. In a decoder it must
    be causal; its cache keeps the inputs of each convolution, which a segment memory does not, so
    that is refused. Without a cache it ignores the block's `attention_mask`, so packed rows are
    refused; with a cache the mask selects the slots of a beam's own text.

    Use it for Universal Transformers, and tasks in which neighbouring positions should mix.

    Args:
        intermediate_dim: int. Width F of the hidden layer.
        kernel_sizes: pair of ints. Number of positions that each convolution sees.
        activation: name or function. Note that Keras's `"gelu"` is the exact one.
        dropout: float. Dropout rate of the hidden layer.
        causal: bool. If True, a convolution reads a position and those before; else both sides.
        kernel_initializer: of all kernels.

    Call arguments:
        x: (B, T, D).
        padding_mask: bool (B, T), True where a position is real; by default Keras's mask of `x`.
        cache: from `initial_cache` or an earlier call; with it `attention_mask`, bool
            (T, slots), (B, T, slots) or (B, 1, T, slots), `query_positions`, `key_positions` and
            `padding_mask` (B, slots) are as those of a `MultiHeadAttention`.

    Returns:
        (B, T, D); then, with `cache`, the new cache.

    Raises:
        ValueError: if a size is below 1, `kernel_sizes` is not a pair, `dropout` is outside [0, 1),
            the mask is not boolean or does not fit, or there is a cache and `causal` is False.

    Example:
        >>> import keras, keras_attn
        >>> layer = keras_attn.layers.SeparableConvTransition(32, causal=True)
        >>> layer(keras.ops.ones((2, 3, 8))).shape
        TensorShape([2, 3, 8])

    Differs from the paper: it names no sizes; these are Tensor2Tensor's, 3 and then 5.

    Reference: [Dehghani et al., 2019](https://arxiv.org/abs/1807.03819), section 2.1; the
        convolution: [Chollet, 2017](https://arxiv.org/abs/1610.02357), section 1.
    """

    weight_axes = {
        "intermediate/depthwise_kernel": (),
        "intermediate/pointwise_kernel": (None, None, "model"),
        "intermediate/bias": ("model",),
        "output/depthwise_kernel": (None, "model"),
        "output/pointwise_kernel": (None, "model"),
        "output/bias": (),
    }

    def __init__(
        self,
        intermediate_dim,
        kernel_sizes=(3, 5),
        activation="relu",
        dropout=0.0,
        causal=False,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_sizes(intermediate_dim=intermediate_dim)
        check_rates(dropout=dropout)
        self.intermediate_dim = intermediate_dim
        self.kernel_sizes = integers(2, 1, kernel_sizes=kernel_sizes)
        self.activation = get_activation(activation)
        self.dropout = dropout
        self.causal = bool(causal)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, x_shape):
        def convolution(width, kernel_size, name):
            return keras.layers.SeparableConv1D(
                width,
                kernel_size,
                depthwise_initializer=redraw(self.kernel_initializer),
                pointwise_initializer=redraw(self.kernel_initializer),
                data_format="channels_last",
                dtype=self.dtype_policy,
                name=name,
            )

        first, second = self.kernel_sizes
        self.intermediate = convolution(self.intermediate_dim, first, "intermediate")
        self.output_convolution = convolution(x_shape[-1], second, "output")
        self.drop = Dropout(self.dropout, dtype=self.dtype_policy)
        # Unknown length: the layer would refuse a sequence shorter than its kernel, before padding.
        self.intermediate.build((x_shape[0], None, x_shape[-1]))
        self.output_convolution.build((x_shape[0], None, self.intermediate_dim))

    def initial_cache(self, batch_size, max_length):
        """Return empty slots for both convolutions' inputs; they grow without a `max_length`."""
        check_that(self.built, "built before a cache of it is made", layer=self)
        grows = max_length is None
        slots = 0 if grows else max_length
        widths = {"inputs": self.output_convolution.filters, "hidden": self.intermediate_dim}
        cache = {
            name: ops.zeros((batch_size, 1, slots, width), self.compute_dtype)
            for name, width in widths.items()
        }
        return {**cache, "index": None if grows else ops.convert_to_tensor(0, "int32")}

    def call(
        self,
        x,
        padding_mask=None,
        attention_mask=None,
        query_positions=None,
        key_positions=None,
        cache=None,
        training=None,
    ):
        check_shape(x, "x", (None, None, x.shape[-1]))
        if cache is not None:
            masks = padding_mask, attention_mask
            seen = slots_at_distance(x, cache, query_positions, key_positions, *masks)
            return self._continue(x, cache, seen, training)
        padding_mask = keras_mask(x) if padding_mask is None else padding_mask
        real = join_masks((x, padding_mask, "padding_mask"))  # (B, T)
        first, second = self.kernel_sizes
        hidden = _convolve(self.intermediate, self._shifted(x, real, first))  # (B, T, F)
        hidden = self.drop(activate(self.activation, hidden), training=training)
        return _convolve(self.output_convolution, self._shifted(hidden, real, second))

    def _continue(self, x, cache, seen, training):
        """Compute new positions, and read those before them from the cache's slots."""
        if not self.causal:
            raise ValueError("A `cache` needs `causal=True`. Received: causal=False.")
        index = cache["index"]
        inputs = add_slots(cache["inputs"], ops.expand_dims(x, 1), index)
        hidden = _convolve(self.intermediate, _read(inputs, seen, self.kernel_sizes[0]))
        hidden = self.drop(activate(self.activation, hidden), training=training)  # (B, T, F)
        slots = add_slots(cache["hidden"], ops.expand_dims(hidden, 1), index)
        index = None if index is None else index + ops.shape(x)[1]
        output = _convolve(self.output_convolution, _read(slots, seen, self.kernel_sizes[1]))
        return output, {"inputs": inputs, "hidden": slots, "index": index}

    def _shifted(self, x, real, kernel_size):
        """Yield what each tap of a convolution reads (B, T, C), the first tap first."""
        if real is not None:
            x = ops.where(ops.expand_dims(real, -1), x, 0)
        length = size(x, 1)
        before = kernel_size - 1 if self.causal else (kernel_size - 1) // 2
        x = pad(x, before, kernel_size - 1 - before, axis=1)
        return (slice_axis(x, tap, length, axis=1) for tap in range(kernel_size))

    def call_products(self, output_shape, x, **others):
        """Return the multiply-adds of the products of matrices of a call for the shape of `x`."""
        return 2 * math.prod(x) * self.intermediate_dim

    def hidden_products(self, output_shape, x, **others):
        """Return those of `call_products` that multiply what the layer has computed: all.

        The first product reads a convolution by weights, too.
        """
        return self.call_products(output_shape, x)

    def compute_output_shape(self, x_shape):
        return x_shape


def _read(slots, seen, kernel_size):
    """Yield what each tap of a causal convolution reads of slots (B, 1, S, C), as (B, T, C).

    `seen(d)` is a mask (B, T, S), True at the slot of the position d before each new position.
    """
    slots = slots[:, 0]
    distances = reversed(range(kernel_size))
    return (ops.matmul(ops.cast(seen(d), slots.dtype), slots) for d in distances)


def _convolve(convolution, read):
    """Apply a separable convolution to what each tap reads.

    The depthwise part is a sum of products: XLA multiplies the gradient of a grouped convolution by
    the size of the model axis if a mesh has another axis too.
    """
    taps = ops.convert_to_tensor(convolution.depthwise_kernel)[:, :, 0]  # (K, C)
    mixed = sum(x * taps[tap] for tap, x in enumerate(read))  # (B, T, C)
    rows, unflatten = flatten_rows(mixed)
    pointwise = ops.convert_to_tensor(convolution.pointwise_kernel)[0]
    return unflatten(ops.matmul(rows, pointwise) + ops.convert_to_tensor(convolution.bias))
