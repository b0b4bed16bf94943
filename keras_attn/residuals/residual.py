"""What every residual is."""

import keras

from keras_attn.registry import build_once


class Residual(keras.layers.Layer):
    """How a sublayer is wrapped: `after(x, sublayer(before(x)))`, with a norm of its own.

    Calling the layer itself is `call(x, sublayer_output)`, the `after` step, which is where the
    shapes are known; `needs_closing_norm` says whether a stack of such blocks ends unnormalised.

    Args:
        epsilon: float. Added to the variance in the normalisation.
    """

    needs_closing_norm = False

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.supports_masking = True
        self.norm = keras.layers.LayerNormalization(
            epsilon=epsilon, dtype=self.dtype_policy, name="norm"
        )

    def build(self, x_shape, y_shape=None):
        build_once(self.norm, x_shape)

    def before(self, x):
        """What the sublayer reads."""
        return x

    def after(self, x, y):
        """What the block passes on, given its input and the sublayer's output."""
        return self(x, y)

    def compute_output_shape(self, x_shape, y_shape=None):
        return x_shape

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}
