"""The position-wise feed-forward network."""

import math

import keras
from keras import ops

from keras_attn import registry
from keras_attn.backend.loops import for_each_tile
from keras_attn.initializers import redraw
from keras_attn.ops.activations import activate, get_activation
from keras_attn.ops.checks import check_given, check_rates, check_sizes, check_that
from keras_attn.ops.dropout import Dropout
from keras_attn.ops.random import RepeatedSeed, replica_seed, split_seed
from keras_attn.ops.shapes import ceil_div, flatten_rows, pad, size, slice_axis
from keras_attn.registry import KernelLayer


@registry.register
class FeedForward(KernelLayer):
    """Two dense layers, applied to each position.

        FFN(x) = activation(x W_1 + b_1) W_2 + b_2

    Time O(T D F), memory O(T F). With `chunks` c, the positions are computed in c parts, one after
    another, and memory is O(T D + T F / c): only one chunk's hidden layer exists at a time. In
    training the backward pass recomputes it, which takes a third more time in all. Numbers do not
    depend on `chunks`, except that each chunk draws its own dropout.

    Use it for every block without a reason for another layer; set `chunks` for long sequences.

    Args:
        intermediate_dim: int. Width F of the hidden layer.
        activation: name or function. Note that Keras's `"gelu"` is the exact one.
        use_bias: bool. If False, there are no biases b_1 and b_2.
        dropout: float. Dropout rate of the hidden layer.
        chunks: int. Number c of chunks; at most one per position.
        kernel_initializer, kernel_regularizer, kernel_constraint: of both kernels.
        bias_initializer, bias_regularizer, bias_constraint: of both biases.
        output_initializer: of W_2; by default `kernel_initializer`.

    Call arguments:
        x: (B, T, D).

    Returns:
        (B, T, D).

    Raises:
        ValueError: if `intermediate_dim` or `chunks` is below 1, or `dropout` is outside [0, 1).

    Example:
        >>> import keras, keras_attn
        >>> keras_attn.layers.FeedForward(32)(keras.ops.ones((2, 3, 8))).shape
        TensorShape([2, 3, 8])

    Differs from the paper: none with the default activation; the paper drops nothing inside.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.3, eq. 2; chunks:
        [Kitaev et al., 2020](https://arxiv.org/abs/2001.04451), section 3, eq. 10.
    """

    weight_axes = {
        "intermediate/kernel": (None, "model"),
        "intermediate/bias": ("model",),
        "output/kernel": ("model",),
        "output/bias": (),
    }

    def __init__(
        self, intermediate_dim, activation="relu", use_bias=True, dropout=0.0, chunks=1, **kwargs
    ):
        super().__init__(use_bias=use_bias, **kwargs)
        check_sizes(intermediate_dim=intermediate_dim, chunks=chunks)
        check_rates(dropout=dropout)
        self.intermediate_dim = intermediate_dim
        self.activation = get_activation(activation)
        self.dropout = dropout
        self.chunks = chunks

    # Names of the dense layers that read the input, in the order of their weights.
    INPUTS = ("intermediate",)

    @property
    def takes_rows(self):
        """True if x may also be (B, D): chunks are cut from the axis of positions."""
        return self.chunks == 1

    def build(self, x_shape=None):
        check_given(x=x_shape)
        check_that(len(x_shape) > 1, "of shape (..., length, width)", x_shape=tuple(x_shape))

        def dense(units, initializer, name):
            return keras.layers.Dense(
                units,
                use_bias=self.use_bias,
                kernel_initializer=redraw(initializer),
                bias_initializer=redraw(self.bias_initializer),
                kernel_regularizer=self.kernel_regularizer,
                bias_regularizer=self.bias_regularizer,
                kernel_constraint=self.kernel_constraint,
                bias_constraint=self.bias_constraint,
                dtype=self.dtype_policy,
                name=name,
            )

        last = self.output_initializer or self.kernel_initializer
        for name in self.INPUTS:
            setattr(self, name, dense(self.intermediate_dim, self.kernel_initializer, name))
            getattr(self, name).build(x_shape)
        self.output_dense = dense(x_shape[-1], last, "output")
        self.drop = Dropout(self.dropout, dtype=self.dtype_policy)
        self.output_dense.build((*x_shape[:-1], self.intermediate_dim))

    def call(self, x, training=None):
        rows, unflatten = flatten_rows(x)  # (B * T, D)
        length = x.shape[-2]
        chunks = self.chunks if length is None else max(min(self.chunks, length), 1)
        if chunks > 1:
            return unflatten(self._in_chunks(rows, chunks, training))
        return unflatten(self._apply(rows, lambda hidden: self.drop(hidden, training=training)))

    def _apply(self, rows, drop):
        hidden = self.join(*(getattr(self, name)(rows) for name in self.INPUTS))
        return self.output_dense(drop(hidden))

    def join(self, intermediate):
        """Return the hidden layer, from the outputs of the dense layers that `INPUTS` names."""
        return activate(self.activation, intermediate)

    def _in_chunks(self, rows, chunks, training):
        """Compute one chunk after another. Weights are passed in, so each chunk has gradients."""
        count = size(rows, 0)
        length = ceil_div(count, chunks)
        padded = pad(rows, 0, chunks * length - count, axis=0)
        tiles = ops.reshape(padded, (chunks, length, rows.shape[1]))
        layers = [*(getattr(self, name) for name in self.INPUTS), self.output_dense]
        variables = [variable for layer in layers for variable in layer.variables]
        weights = tuple(_as_operand(variable) for variable in variables)
        seeds = ()
        if training and self.dropout:
            seeds = (split_seed(replica_seed(self.drop.seed_generator.next()), chunks),)

        def compute(*operands):
            *seed, tile = operands[: len(seeds) + 1]

            def drop(hidden):
                if not seed:
                    return hidden
                return keras.random.dropout(hidden, self.dropout, seed=RepeatedSeed(*seed))

            mapping = list(zip(variables, operands[len(seeds) + 1 :], strict=True))
            with keras.StatelessScope(state_mapping=mapping):
                return (self._apply(tile, drop),)

        dtype = keras.backend.standardize_dtype(self.compute_dtype)
        (output,) = for_each_tile(compute, (*seeds, tiles), weights, [dtype])
        output = ops.reshape(output, (chunks * length, rows.shape[1]))
        return slice_axis(output, 0, count, axis=0)

    def kernel_size(self):
        """Return the number of weights of all kernels."""
        layers = (*self.INPUTS, "output_dense")
        return sum(math.prod(getattr(self, name).kernel.shape) for name in layers)

    def call_products(self, output_shape, x):
        """Return the multiply-adds of a call for the shape of `x`."""
        chunks = max(min(self.chunks, x[-2]), 1)
        return chunks * ceil_div(math.prod(x[:-1]), chunks) * self.kernel_size()

    def hidden_products(self, output_shape, x):
        """Return those of `call_products` that multiply what the layer itself has computed."""
        products = self.call_products(output_shape, x)
        return products * math.prod(self.output_dense.kernel.shape) // self.kernel_size()

    def compute_output_shape(self, x_shape):
        return x_shape


def _as_operand(variable):
    """Return the value in float32 or more, the dtype in which the chunks' gradients are summed."""
    value = ops.copy(variable)
    if not keras.backend.is_float_dtype(value.dtype):
        return value
    return ops.cast(value, keras.backend.result_type(value.dtype, "float32"))
