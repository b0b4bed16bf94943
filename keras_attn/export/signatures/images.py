"""Signatures of image models: seeds or small images to images, and images to bits."""

import copy
import math

import tensorflow as tf

from keras_attn.export.signatures.model_functions import ModelFunctions, check_range
from keras_attn.generation import Sample, SamplePixels
from keras_attn.generation.decoding import get_strategy
from keras_attn.generation.loop import DecodingOptions, decode
from keras_attn.losses.mixture_of_logistics import MixtureOfLogistics
from keras_attn.models.image_tokens import ImageTokens
from keras_attn.models.model import Model
from keras_attn.ops.checks import check_that
from keras_attn.ops.logistics import num_parameters
from keras_attn.ops.token_losses import crossentropy
from keras_attn.positions import ImageCoordinates


class ImageGenerator(ModelFunctions):
    """Model of images as graph functions: sample images, and score others.

        seed -> images ~ p,   image -> -log2 p(image) / (H W C)

    Args:
        model: a `CausalLanguageModel` of the tokens of an `ImageTokens`, as `image_transformer`.
        strategy: name or object of a decoding strategy; the request's seed replaces its own. By
            default `Sample`, or `SamplePixels` if a token is a whole pixel.

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

    @classmethod
    def fits(cls, model, options):
        return _makes_images(model, options) and model.reads_prompt

    @classmethod
    def from_options(cls, model, options):
        return cls(model, options.strategy)

    def __init__(self, model, strategy=None):
        tokens = ImageTokens.of(model)
        sizes = _mixture_sizes(model, tokens)
        strategy = _strategy_for(sizes, strategy)
        super().__init__(model, *strategy.models)

        def generate(batch_size, seed):
            """Return `images` [B, H, W, C], equal for equal seeds, and the `score` [B] of each."""
            start = tokens.start(batch_size)
            return _generate_images(model, start, tokens, _with_seed(strategy, seed))

        def images_by_noise(noise):
            """Return the outputs of `generate`, drawn by `noise` [T, B, ...]: T tokens an image."""
            start = tokens.start(tf.shape(noise)[1])
            return _generate_images(model, start, tokens, strategy, noise)

        def score(images):
            """Return the `bits_per_dim` [B] of `images` [B, H, W, C]."""
            images = check_range(images, tokens.num_values, "Values of images")
            outputs = model({"token_ids": tokens.inputs(images)})
            if sizes is None:
                losses = crossentropy(tokens.encode(images), outputs)
            else:
                losses = MixtureOfLogistics(*sizes).call(tokens.values(images), outputs)
            bits = tf.reduce_sum(losses, axis=1) / math.log(2.0)
            return {"bits_per_dim": bits / math.prod(tokens.image_shape)}

        scalars = [tf.TensorSpec([], tf.int32, name) for name in ("batch_size", "seed")]
        images = [tf.TensorSpec([None, *tokens.image_shape], tf.int32, "images")]
        self.generate = tf.function(generate, scalars, autograph=False)
        self.images_by_noise, self.tokens, self.strategy = images_by_noise, tokens, strategy
        self.score = tf.function(score, images, autograph=False)

    @property
    def signatures(self):
        return {"generate": self.generate, "score": self.score, "serving_default": self.generate}


class ImageEnlarger(ModelFunctions):
    """Model for super-resolution as a graph function, from images to larger images.

        image, seed -> larger image ~ p(. | image)

    Args:
        model: an `EncoderDecoder` of the tokens of images, as `super_resolution_transformer`.
        strategy: name or object of a decoding strategy; the request's seed replaces its own. By
            default `Sample`.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.super_resolution_transformer(6, (1, 2, 1), (2, 4, 1), 1, 1,
        ...     num_heads=2, hidden_dim=8, intermediate_dim=16)
        >>> enlarger = keras_attn.export.ImageEnlarger(model)
        >>> enlarger.generate([[[[0], [3]]]], seed=1)["images"].shape
        TensorShape([1, 2, 4, 1])

    Reference: [Parmar et al., 2018](https://arxiv.org/abs/1802.05751), section 5.3.
    """

    @classmethod
    def fits(cls, model, options):
        return _makes_images(model, options) and not model.reads_prompt

    @classmethod
    def from_options(cls, model, options):
        return cls(model, options.strategy)

    def __init__(self, model, strategy=None):
        tokens, position = ImageTokens.of(model), model.source_position
        strategy = _strategy_for(_mixture_sizes(model, tokens), strategy)
        super().__init__(model, *strategy.models)
        shape = (position.height, position.width, position.channels)
        source = ImageTokens(shape, tokens.num_values)

        def generate(images, seed):
            """Return larger `images` [B, H, W, C], equal for equal seeds, and `score` [B]."""
            images = check_range(images, source.num_values, "Values of images")
            start = source.encode(images)
            return _generate_images(model, start, tokens, _with_seed(strategy, seed))

        def images_by_noise(images, noise):
            """Return the outputs of `generate`, drawn by `noise` [T, B, ...]: T tokens an image."""
            images = check_range(images, source.num_values, "Values of images")
            return _generate_images(model, source.encode(images), tokens, strategy, noise)

        images = tf.TensorSpec([None, *shape], tf.int32, "images")
        seed = tf.TensorSpec([], tf.int32, "seed")
        self.generate = tf.function(generate, [images, seed], autograph=False)
        self.images_by_noise, self.tokens, self.strategy = images_by_noise, tokens, strategy

    @property
    def signatures(self):
        return {"generate": self.generate, "serving_default": self.generate}


def _makes_images(model, options):
    """Return True for a model that decodes at the coordinates of an image, without a tokenizer."""
    if not (isinstance(model, Model) and hasattr(model, "reads_prompt")):
        return False
    return isinstance(model.position, ImageCoordinates) and options.tokenizer is None


def _mixture_sizes(model, tokens):
    """Return the sizes of a pixel's mixture of logistics; None if the outputs are logits."""
    if not tokens.whole_pixels:
        return None
    channels = tokens.image_shape[2]
    return model.output.shape[-1] // num_parameters(1, channels), channels, tokens.num_values


def _strategy_for(mixture_sizes, strategy):
    """Return the strategy, by default one that draws tokens, or pixels of a mixture."""
    if strategy is None:
        return Sample() if mixture_sizes is None else SamplePixels(*mixture_sizes)
    strategy = get_strategy(strategy)
    is_right = mixture_sizes is None or isinstance(strategy, SamplePixels)
    check_that(is_right, "a `SamplePixels` for a model of whole pixels", strategy=strategy)
    return strategy


def _with_seed(strategy, seed):
    """Return a strategy, and those that it wraps, with another seed, which may be a tensor."""
    strategy = copy.copy(strategy)  # not by its configuration: a draft keeps its weights
    if hasattr(strategy, "seed"):
        strategy.seed = seed
    if hasattr(strategy, "strategy"):
        strategy.strategy = _with_seed(strategy.strategy, seed)
    return strategy


def _generate_images(model, inputs, tokens, strategy, noise=None):
    """Return `images` (B, H, W, C) and their `score` (B,), drawn by the strategy or by `noise`."""
    strategy.check_length(tokens.length)
    length = tokens.length
    options = DecodingOptions(length, tokens.start_id, (-1,), True, capacity=length, noise=noise)
    ids, score = decode(model, strategy, options, inputs)
    return {"images": tokens.decode(ids), "score": score}
