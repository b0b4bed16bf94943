"""Embedding of whole pixels."""

import keras
from keras import ops

from keras_attn import registry
from keras_attn.layers.id_reader import IdReader
from keras_attn.ops.checks import check_sizes
from keras_attn.ops.ids import known_ids
from keras_attn.ops.images import check_pixels, split_number


@registry.register
class PixelEmbedding(IdReader, registry.Composite, keras.layers.Layer):
    """Embed a pixel by a linear map of its channels' values.

        x = v W + b,   v_c = 2 value_c / (num_values - 1) - 1

    This is the strided convolution of the paper, with one window a pixel. Token ids are those of
    `keras_attn.models.ImageTokens(..., whole_pixels=True)`: 1 plus the number whose digits are the
    pixel's values. The id num_values^C + 1 starts an image and has a learned vector of its own.
    Images have no padding, so the layer makes no mask. Time O(T C D).

    Args:
        num_values: int. Different values of a channel.
        channels: int. Values of a pixel C.
        hidden_dim: int. Width D.

    Call arguments:
        token_ids: int (B, T).

    Returns:
        (B, T, D).

    Raises:
        ValueError: if a size is too small, there are 2^31 pixels or more, or `token_ids` are not
            integers or, in an eager call, not ids of pixels.
        InvalidArgumentError: in a graph of TensorFlow, but for steps of decoding, if an id is not
            in [0, num_values^C + 1]. XLA drops this check: it takes the nearest pixel.

    Example:
        >>> import keras_attn
        >>> tokens = keras_attn.models.ImageTokens((2, 2, 3), whole_pixels=True)
        >>> ids = tokens.encode([[[[0, 127, 255], [1, 2, 3]], [[4, 5, 6], [7, 8, 9]]]])
        >>> keras_attn.layers.PixelEmbedding(256, 3, 8)(ids).shape
        TensorShape([1, 4, 8])

    Differs from the paper: none.

    Reference: [Parmar et al., 2018](https://arxiv.org/abs/1802.05751), section 3.1.
    """

    weight_axes = {"kernel": (), "bias": (), "start": ()}

    def __init__(self, num_values, channels, hidden_dim, **kwargs):
        super().__init__(**kwargs)
        check_sizes(channels=channels, hidden_dim=hidden_dim)
        check_sizes(least=2, num_values=num_values)
        check_pixels(num_values, channels)
        self.num_values = num_values
        self.channels = channels
        self.hidden_dim = hidden_dim

    def build(self, input_shape=None):
        shape = (self.channels, self.hidden_dim)
        self.kernel = self.add_weight(shape, "glorot_uniform", name="kernel")
        self.bias = self.add_weight((self.hidden_dim,), "zeros", name="bias")
        normal = keras.initializers.RandomNormal(stddev=self.hidden_dim**-0.5)
        self.start = self.add_weight((self.hidden_dim,), normal, name="start")

    def call(self, token_ids):
        num_pixels = self.num_values**self.channels
        token_ids = known_ids(token_ids, "token_ids", num_pixels + 2)
        is_start = ops.equal(token_ids, num_pixels + 1)
        pixels = ops.clip(token_ids - 1, 0, num_pixels - 1)
        values = split_number(pixels, self.channels, self.num_values)
        # In float32: bfloat16 cannot tell 255 from 256.
        values = 2.0 * ops.cast(values, "float32") / (self.num_values - 1) - 1.0
        x = ops.matmul(ops.cast(values, self.compute_dtype), self.kernel) + self.bias
        start = ops.cast(self.start, x.dtype)  # JAX's `where` takes no variable
        return ops.where(ops.expand_dims(is_start, -1), start, x)

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.hidden_dim)
