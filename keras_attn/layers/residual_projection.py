"""A dense network of one hidden layer beside a linear map of its input."""

import keras

from keras_attn import registry
from keras_attn.ops.activations import activate, get_activation
from keras_attn.ops.checks import check_rates, check_sizes
from keras_attn.ops.dropout import Dropout


@registry.register
class ResidualProjection(registry.MaskedLayer):
    """Project vectors by a hidden layer, and add a linear map of them.

        y = activation(x W_1 + b_1) W_2 + b_2 + x R + b_3

    Time and weights O(F (D + units) + D units).

    Use it to embed patches of numbers, and to read numbers from states.

    Args:
        units: int. Width of the output.
        intermediate_dim: int. Width F of the hidden layer.
        activation: name or function.
        dropout: float. Dropout rate of the hidden layer's projection, before the sum.

    Call arguments:
        x: (B, D) or (B, T, D).

    Returns:
        (B, units) or (B, T, units).

    Raises:
        ValueError: if a size is below 1, or `dropout` is outside [0, 1).

    Example:
        >>> import keras, keras_attn
        >>> layer = keras_attn.layers.ResidualProjection(3, 16)
        >>> layer(keras.ops.ones((2, 7, 5))).shape
        TensorShape([2, 7, 3])

    Differs from the paper: no norm of the output.

    Reference: [Das et al., 2023](https://arxiv.org/abs/2304.08424), section 4, residual block.
    """

    weight_axes = {
        "hidden/kernel": (None, "model"),
        "hidden/bias": ("model",),
        "output/kernel": ("model",),
        "output/bias": (),
        "residual/kernel": (),
        "residual/bias": (),
    }

    def __init__(self, units, intermediate_dim, activation="relu", dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        check_sizes(units=units, intermediate_dim=intermediate_dim)
        check_rates(dropout=dropout)
        self.units, self.intermediate_dim = units, intermediate_dim
        self.activation, self.dropout = get_activation(activation), dropout
        policy = self.dtype_policy
        self.hidden_dense = keras.layers.Dense(intermediate_dim, dtype=policy, name="hidden")
        self.output_dense = keras.layers.Dense(units, dtype=policy, name="output")
        self.residual_dense = keras.layers.Dense(units, dtype=policy, name="residual")
        self.drop = Dropout(dropout, dtype=policy)

    def build(self, x_shape):
        self.hidden_dense.build(x_shape)
        self.output_dense.build((*x_shape[:-1], self.intermediate_dim))
        self.residual_dense.build(x_shape)

    def call(self, x, training=None):
        hidden = activate(self.activation, self.hidden_dense(x))
        y = self.drop(self.output_dense(hidden), training=training)
        return y + self.residual_dense(x)

    def compute_output_shape(self, x_shape):
        return (*x_shape[:-1], self.units)
