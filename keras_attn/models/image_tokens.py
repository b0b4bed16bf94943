"""Images as sequences of tokens."""

import math

import numpy as np
from keras import ops

from keras_attn.layers import PixelEmbedding
from keras_attn.ops.checks import check_shape, check_sizes, check_that
from keras_attn.ops.images import (
    block_raster_order,
    check_pixels,
    integers,
    join_values,
    split_number,
)
from keras_attn.positions import ImageCoordinates
from keras_attn.registry import Value, register


@register
class ImageTokens(Value):
    """Tokenizer of images: from images to token ids and back.

        id_t = 1 + the t-th value,   inputs = start, id_1 .. id_{T-1},   labels = id_1 .. id_T

    Id 0 is reserved for padding, which images do not have. The values 0 .. V-1 have the ids 1 .. V,
    and V + 1 starts an image. Tokens are in raster order, the channels of a pixel next to each
    other; with a `query_shape`, block after block, in the order of `BlockLocal2D`. With
    `whole_pixels` a token is a pixel: the number whose digits to the base V are its channels. The
    `values` in that order are the labels of a `keras_attn.losses.MixtureOfLogistics`.

    Args:
        image_shape: (height, width, channels).
        num_values: int. Different values V of a channel.
        query_shape: (height, width) of a block, the width in tokens; None for raster order.
        whole_pixels: bool. If True, a token is a pixel, not a value of a channel.

    Raises:
        ValueError: if a size is too small, or images do not fit.

    Example:
        >>> import keras_attn, numpy as np
        >>> model = keras_attn.models.image_transformer(258, (4, 4, 3), num_layers=1, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16)
        >>> tokens = keras_attn.models.ImageTokens.of(model)
        >>> images = np.zeros((2, 4, 4, 3), "uint8")
        >>> tokens.inputs(images).shape, tokens.encode(images).shape, tokens.start_id
        (TensorShape([2, 48]), TensorShape([2, 48]), 257)
        >>> tokens.decode(tokens.encode(images)).shape
        TensorShape([2, 4, 4, 3])

    Differs from the paper: none.

    Reference: [Parmar et al., 2018](https://arxiv.org/abs/1802.05751), sections 3.1 and 3.3.
    """

    def __init__(self, image_shape, num_values=256, query_shape=None, whole_pixels=False):
        self.image_shape = tuple(image_shape)
        check_that(len(self.image_shape) == 3, "(height, width, channels)", image_shape=image_shape)
        for length in self.image_shape:
            check_sizes(image_shape=length)
        check_sizes(least=2, num_values=num_values)
        self.num_values = num_values
        is_raster = query_shape is None
        self.query_shape = None if is_raster else integers(2, 1, query_shape=query_shape)
        self.whole_pixels = bool(whole_pixels)
        check_pixels(num_values, self._values_per_token)

    @classmethod
    def of(cls, model):
        """Return the tokenizer of an image model, such as an `image_transformer`."""
        position, embedding = model.position, model.embedding
        if not isinstance(position, ImageCoordinates):
            raise ValueError(
                "`model` must have `ImageCoordinates` as its position, which hold the image's "
                f"shape. Received: position={position!r}."
            )
        height, width, query_shape = position.height, position.width, position.query_shape
        if isinstance(embedding, PixelEmbedding):
            shape = height, width, embedding.channels
            return cls(shape, embedding.num_values, query_shape, whole_pixels=True)
        shape = height, width, position.channels
        return cls(shape, embedding.vocabulary_size - 2, query_shape)

    @property
    def length(self):
        """Number of tokens of an image."""
        return math.prod(self.image_shape) // self._values_per_token

    @property
    def start_id(self):
        """Id of the token that starts an image."""
        return self.num_values**self._values_per_token + 1

    @property
    def vocabulary_size(self):
        """Number of ids: those of the values, of padding and of the start."""
        return self.start_id + 1

    @property
    def _values_per_token(self):
        return self.image_shape[2] if self.whole_pixels else 1

    def _order(self):
        """Return the index in raster order of each token."""
        if self.query_shape is None:
            return np.arange(self.length, dtype="int32")
        height = self.image_shape[0]
        return block_raster_order((height, self.length // height), self.query_shape)

    def values(self, images):
        """Return the values of each token, int32 (B, T, C or 1), of images (B, H, W, C)."""
        images = ops.cast(ops.convert_to_tensor(images), "int32")
        check_shape(images, "images", (None, *self.image_shape))
        values = ops.reshape(images, (-1, self.length, self._values_per_token))
        return ops.take(values, ops.convert_to_tensor(self._order()), axis=1)

    def encode(self, images):
        """Return the token ids, int32 (B, T), of images (B, H, W, C), integers 0 .. V-1."""
        return 1 + join_values(self.values(images), self.num_values)

    def inputs(self, images):
        """Return the inputs of a model that predicts `encode(images)`: a start token, then all ids
        except the last."""
        ids = self.encode(images)
        return ops.concatenate([self.start(ops.shape(ids)[0]), ids[:, :-1]], axis=1)

    def start(self, batch_size):
        """Return the prompt (B, 1) from which a model generates whole images."""
        return ops.full((batch_size, 1), self.start_id, dtype="int32")

    def decode(self, token_ids):
        """Return images, int32 (B, H, W, C), of the ids (B, T) of whole images.

        An id that is no value, which a model may generate, becomes the nearest value.
        """
        token_ids = ops.convert_to_tensor(token_ids)
        check_shape(token_ids, "token_ids", (None, self.length))
        numbers = ops.clip(token_ids - 1, 0, self.start_id - 2)
        values = split_number(numbers, self._values_per_token, self.num_values)
        values = ops.take(values, ops.convert_to_tensor(np.argsort(self._order())), axis=1)
        return ops.reshape(values, (-1, *self.image_shape))
