"""The feed-forward network with a gate."""

from keras_attn.feed_forward.feed_forward import FeedForward
from keras_attn.ops.activations import activate
from keras_attn.registry import register


@register
class GatedFeedForward(FeedForward):
    """Two dense layers, of which the first is multiplied by a gate.

        FFN(x) = (activation(x W_g) * (x W_1)) W_2

    The layer is SwiGLU with silu, GEGLU with gelu, ReGLU with relu, and GLU with sigmoid. Three
    kernels of width F hold as many weights as the two of a `FeedForward` of width 3/2 F, so models
    give it two thirds of the width. Time O(T D F), memory O(T F), with `chunks` c memory
    O(T D + T F / c).

    Use it for language models as they are built since Llama.

    Args:
        intermediate_dim: int. Width F of the hidden layer.
        activation: name or function, of the gate.
        use_bias: bool. If True, the three dense layers have biases.
        dropout: float. Dropout rate of the hidden layer.
        chunks: int. Number of parts that are computed one after another.
        kernel_initializer, kernel_regularizer, kernel_constraint: of each kernel.
        bias_initializer, bias_regularizer, bias_constraint: of each bias.
        output_initializer: of W_2; by default `kernel_initializer`.

    Call arguments:
        x: (B, T, D).

    Returns:
        (B, T, D).

    Raises:
        ValueError: as a `FeedForward`.

    Example:
        >>> import keras, keras_attn
        >>> keras_attn.layers.GatedFeedForward(32)(keras.ops.ones((2, 3, 8))).shape
        TensorShape([2, 3, 8])

    Differs from the paper: none.

    Reference: [Shazeer, 2020](https://arxiv.org/abs/2002.05202), section 2, eq. 6.
    """

    INPUTS = ("gate", "intermediate")
    weight_axes = {
        **FeedForward.weight_axes,
        "gate/kernel": (None, "model"),
        "gate/bias": ("model",),
    }

    def __init__(self, intermediate_dim, activation="silu", use_bias=False, **kwargs):
        super().__init__(intermediate_dim, activation, use_bias, **kwargs)

    def join(self, gate, intermediate):
        return activate(self.activation, gate) * intermediate
