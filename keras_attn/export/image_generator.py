"""Images out, or in and scored."""

import math

import tensorflow as tf

from keras_attn.export.drawing import draw, likelihood_of
from keras_attn.models.image_tokens import ImageTokens
from keras_attn.ops.crossentropy import crossentropy


class ImageGenerator(tf.Module):
    """A model of images, as functions from and to images.

        seed -> images ~ p,   image -> -log2 p(image) / (H W C)

    Args:
        model: a `CausalLanguageModel` of the tokens of an `ImageTokens`, as `image_transformer`.
        strategy: name or object of a decoding strategy, whose own seed does not count; by default
            `Sample`, or `SamplePixels` where tokens are whole pixels.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.image_transformer(6, (2, 3, 1), num_layers=1, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16)
        >>> generator = keras_attn.export.ImageGenerator(model)
        >>> images = generator.generate(4, seed=1)["images"]
        >>> images.shape, generator.score(images)["bits_per_dim"].shape
        (TensorShape([4, 2, 3, 1]), TensorShape([4]))

    Reference: [Parmar et al., 2018](https://arxiv.org/abs/1802.05751), sections 3 and 5.
    """

    def __init__(self, model, strategy=None):
        super().__init__()
        # The weights alone: to track the model would export its optimizer too.
        self.weights = [weight.value for weight in model.weights]
        tokens = ImageTokens.of(model)
        likelihood = likelihood_of(model, tokens)

        def generate(batch_size, seed):
            """So many `images` [B, H, W, C], the same for the same seed, and `score` [B] of each."""
            return draw(model, tokens.start(batch_size), tokens, strategy, seed)

        def score(images):
            """`bits_per_dim` [B] of `images` [B, H, W, C]."""
            outputs = model({"token_ids": tokens.inputs(images)}, training=False)
            if likelihood is None:
                losses = crossentropy(tokens.encode(images), outputs)
            else:
                losses = likelihood.call(tokens.values(images), outputs)
            bits = tf.reduce_sum(losses, axis=1) / math.log(2.0)
            return {"bits_per_dim": bits / math.prod(tokens.image_shape)}

        numbers = [tf.TensorSpec([], tf.int32, name) for name in ("batch_size", "seed")]
        images = [tf.TensorSpec([None, *tokens.image_shape], tf.int32, "images")]
        self.generate = tf.function(generate, numbers, autograph=False)
        self.score = tf.function(score, images, autograph=False)
