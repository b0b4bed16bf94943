"""The position-wise feed-forward network."""

import keras

from keras_attn import axis
from keras_attn.ops.affine import flatten_rows
from keras_attn.ops.checks import check_rates, check_sizes


@axis.register
class FeedForward(keras.layers.Layer):
    """Two dense layers, the same at every position.

        FFN(x) = activation(x W_1 + b_1) W_2 + b_2

    Time O(T D F), memory O(T F).

    Args:
        intermediate_dim: int. Width F of the hidden layer.
        activation: name or function. Note that Keras's `"gelu"` is the exact one.
        dropout: float. Dropout rate of the hidden layer.
        kernel_initializer: of both kernels.
        output_initializer: of W_2; by default `kernel_initializer`.

    Call arguments:
        x: (B, T, D).

    Returns:
        (B, T, D).

    Raises:
        ValueError: if `intermediate_dim` < 1 or `dropout` is outside [0, 1).

    Example:
        >>> import keras_attn
        >>> from keras import ops
        >>> keras_attn.layers.FeedForward(32)(ops.ones((2, 3, 8))).shape
        TensorShape([2, 3, 8])

    Differs from the paper: none with the default activation; the paper drops nothing inside.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.3, eq. 2.
    """

    def __init__(
        self,
        intermediate_dim,
        activation="relu",
        dropout=0.0,
        kernel_initializer="glorot_uniform",
        output_initializer=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_sizes(intermediate_dim=intermediate_dim)
        check_rates(dropout=dropout)
        self.intermediate_dim = intermediate_dim
        self.activation = keras.activations.get(activation)
        self.dropout = dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.output_initializer = keras.initializers.get(output_initializer)
        self.supports_masking = True

    def build(self, x_shape):
        def dense(units, initializer, name):
            return keras.layers.Dense(
                units,
                kernel_initializer=axis.redraw(initializer),
                dtype=self.dtype_policy,
                name=name,
            )

        self.intermediate = dense(self.intermediate_dim, self.kernel_initializer, "intermediate")
        self.output_dense = dense(
            x_shape[-1], self.output_initializer or self.kernel_initializer, "output"
        )
        self.drop = keras.layers.Dropout(self.dropout, dtype=self.dtype_policy)
        self.intermediate.build(x_shape)
        self.output_dense.build((*x_shape[:-1], self.intermediate_dim))

    def call(self, x, training=None):
        rows, unflatten = flatten_rows(x)
        hidden = self.activation(self.intermediate(rows))  # (B * T, F)
        return unflatten(self.output_dense(self.drop(hidden, training=training)))

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "output_initializer": keras.initializers.serialize(self.output_initializer),
        }
