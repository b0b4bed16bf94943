"""Base class of layers of projections: Keras's options for kernels and biases."""

import keras

from keras_attn import registry


class KernelLayer(registry.MaskedLayer):
    """A layer whose kernels are made with the same options, and its biases too.

    Args:
        use_bias: bool. If False, the layer has no biases.
        kernel_initializer, kernel_regularizer, kernel_constraint: of each kernel.
        bias_initializer, bias_regularizer, bias_constraint: of each bias.
        output_initializer: of the last kernel; by default `kernel_initializer`.
    """

    def __init__(
        self,
        *,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        output_initializer=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.output_initializer = keras.initializers.get(output_initializer)
