"""A depth over a few vectors that have read all positions."""

import keras
from keras import ops

from keras_attn import positions, registry
from keras_attn.attention.inputs import keras_mask
from keras_attn.ops.checks import check_sizes


@registry.register
class Latents(registry.MaskedLayer):
    """Read all positions into N vectors, run another depth over these, and write positions back.

        z = Read(Z, x),   z = Depth(z),   y_t = Write(P_t, z)

    Z (N, C) is learned, P are the vectors of `position`. The depth takes time O(N^2), whatever the
    length T is; reading and writing take O(T N).

    Use it for long inputs whose content fits into N vectors.

    Args:
        depth: of the depth axis, for vectors of width C.
        read, write: `CrossAttentionBlock`s.
        num_latents: int. Number of vectors N.
        latent_dim: int. Width C.
        position: name or object of the position axis, whose vectors are the queries of `write`.
        latents_initializer: of Z.

    Call arguments:
        x: (B, T, D).
        padding_mask: bool (B, T), True where a position is real; by default Keras's mask of `x`.

    Returns:
        (B, T, D).

    Raises:
        ValueError: if `num_latents` or `latent_dim` is below 1.

    Example:
        >>> import keras
        >>> from keras_attn import depth, layers, positions
        >>> from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
        >>> block = TransformerBlock(MultiHeadAttention(2, 4), FeedForward(16))
        >>> read, write = (layers.CrossAttentionBlock(MultiHeadAttention(2, 4), FeedForward(16))
        ...     for _ in range(2))
        >>> latents = depth.Latents(depth.Stack([block]), read, write, 3, 8, positions.Learned(20))
        >>> latents(keras.ops.ones((1, 20, 6))).shape
        TensorShape([1, 20, 6])

    Differs from the paper: none.

    Reference: [Jaegle et al., 2022](https://arxiv.org/abs/2107.14795), section 3.1 and 3.2.
    """

    weight_axes = {"latents": ()}

    def __init__(
        self,
        depth,
        read,
        write,
        num_latents,
        latent_dim,
        position,
        latents_initializer=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_sizes(num_latents=num_latents, latent_dim=latent_dim)
        self.depth = registry.revive(depth)
        self.read = registry.revive(read)
        self.write = registry.revive(write)
        self.num_latents = num_latents
        self.latent_dim = latent_dim
        self.position = positions.get(position, dtype=self.dtype_policy)
        self.latents_initializer = keras.initializers.get(latents_initializer)

    def build(self, x_shape):
        initializer = self.latents_initializer or keras.initializers.TruncatedNormal(stddev=0.02)
        shape = self.num_latents, self.latent_dim
        self.latents = self.add_weight(shape, initializer, name="latents")
        latent_shape = None, *shape
        registry.build_once(self.read, latent_shape, x_shape)
        registry.build_once(self.depth, latent_shape)
        registry.build_once(self.position, x_shape)
        registry.build_once(self.write, x_shape, latent_shape)

    def call(self, x, padding_mask=None, training=None):
        padding_mask = keras_mask(x) if padding_mask is None else padding_mask
        latents = ops.broadcast_to(
            self.latents, (ops.shape(x)[0], self.num_latents, self.latent_dim)
        )
        z = self.read(latents, x, context_mask=padding_mask, training=training)
        z = self.depth(z, training=training)
        return self.write(self.position(ops.zeros_like(x)), z, training=training)

    def compute_output_shape(self, x_shape):
        return x_shape
