"""Embedding of the patches of an image."""

import keras
from keras import ops

from keras_attn import registry
from keras_attn.initializers import redraw
from keras_attn.ops.checks import check_shape, check_sizes, check_that


@registry.register
class PatchEmbedding(registry.MaskedLayer):
    """Cut an image into square patches and embed each by a linear map of its values.

        x = [c; patch_1 W + b; patch_2 W + b; ...]

    Patches are in raster order, the values of a patch by row, column and channel. c is a learned
    vector whose output a classifier reads. This is a convolution whose stride is its width. Time
    O(T P^2 C D), weights P^2 C D + 2 D.

    Args:
        patch_size: int. Rows, and columns, P of a patch.
        hidden_dim: int. Width D.
        class_token: bool. If False, there is no c.
        kernel_initializer: of W.

    Call arguments:
        images: (B, height, width, C), of known height and width.

    Returns:
        (B, T, D), where T counts the patches and c.

    Raises:
        ValueError: if a size is below 1, or patches do not fill the images.

    Example:
        >>> import keras, keras_attn
        >>> layer = keras_attn.layers.PatchEmbedding(4, 16)
        >>> layer(keras.ops.zeros((2, 8, 12, 3))).shape
        TensorShape([2, 7, 16])

    Differs from the paper: none.

    Reference: [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929), section 3.1, eq. 1.
    """

    weight_axes = {"kernel": (), "bias": (), "token": ()}

    def __init__(
        self, patch_size, hidden_dim, class_token=True, kernel_initializer="lecun_normal", **kwargs
    ):
        super().__init__(**kwargs)
        check_sizes(patch_size=patch_size, hidden_dim=hidden_dim)
        self.patch_size = patch_size
        self.hidden_dim = hidden_dim
        self.class_token = bool(class_token)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def num_tokens(self, image_shape):
        """Return the number T of vectors for images of a shape (height, width, channels)."""
        rows, columns = self._grid(image_shape)
        return rows * columns + self.class_token

    def _grid(self, image_shape):
        height, width, _ = image_shape
        size = self.patch_size
        fits = None not in (height, width) and height % size == width % size == 0
        wanted = f"(height, width, channels), in multiples of patch_size={size}"
        check_that(fits, wanted, image_shape=tuple(image_shape))
        return height // size, width // size

    def build(self, images_shape):
        self._grid(images_shape[1:])
        shape = (self.patch_size**2 * images_shape[-1], self.hidden_dim)
        self.kernel = self.add_weight(shape, redraw(self.kernel_initializer), name="kernel")
        self.bias = self.add_weight((self.hidden_dim,), "zeros", name="bias")
        if self.class_token:
            self.token = self.add_weight((self.hidden_dim,), "zeros", name="token")

    def call(self, images):
        (rows, columns), size = self._grid(images.shape[1:]), self.patch_size
        # Another number of channels may fill whole patches too, of another number of images.
        check_shape(images, "images", (None, None, None, self.kernel.shape[0] // size**2))
        images = ops.cast(images, self.compute_dtype)
        x = ops.reshape(images, (-1, rows, size, columns, size, images.shape[-1]))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
        x = ops.reshape(x, (-1, rows * columns, self.kernel.shape[0]))  # (B, T, P P C)
        x = ops.matmul(x, self.kernel) + self.bias
        if not self.class_token:
            return x
        token = ops.broadcast_to(self.token, (ops.shape(x)[0], 1, self.hidden_dim))
        return ops.concatenate([token, x], axis=1)

    def call_products(self, output_shape, images):
        """Return the multiply-adds of a call."""
        batch, tokens, width = output_shape
        return batch * (tokens - self.class_token) * self.kernel.shape[0] * width

    def compute_output_shape(self, images_shape):
        return images_shape[0], self.num_tokens(images_shape[1:]), self.hidden_dim
