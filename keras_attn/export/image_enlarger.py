"""Small images in, large images out."""

import tensorflow as tf

from keras_attn.export.drawing import draw
from keras_attn.models.image_tokens import ImageTokens


class ImageEnlarger(tf.Module):
    """A model for super-resolution, as a function from images to images.

        image, seed -> larger image ~ p(. | image)

    Args:
        model: an `EncoderDecoder` of the tokens of images, as `super_resolution_transformer`.
        strategy: name or object of a decoding strategy, whose own seed does not count; by default
            `Sample`.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.super_resolution_transformer(6, (1, 2, 1), (2, 4, 1), 1, 1,
        ...     num_heads=2, hidden_dim=8, intermediate_dim=16)
        >>> enlarger = keras_attn.export.ImageEnlarger(model)
        >>> enlarger.generate([[[[0], [3]]]], seed=1)["images"].shape
        TensorShape([1, 2, 4, 1])

    Reference: [Parmar et al., 2018](https://arxiv.org/abs/1802.05751), section 5.3.
    """

    def __init__(self, model, strategy=None):
        super().__init__()
        # The weights alone: to track the model would export its optimizer too.
        self.weights = [weight.value for weight in model.weights]
        tokens, position = ImageTokens.of(model), model.source_position
        shape = (position.height, position.width, position.channels)
        source = ImageTokens(shape, tokens.num_values)

        def generate(images, seed):
            """Larger `images` [B, H, W, C], the same for the same seed, and `score` [B] of each."""
            return draw(model, source.encode(images), tokens, strategy, seed)

        inputs = [
            tf.TensorSpec([None, *shape], tf.int32, "images"),
            tf.TensorSpec([], tf.int32, "seed"),
        ]
        self.generate = tf.function(generate, inputs, autograph=False)
