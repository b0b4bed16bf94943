"""Projection of narrow embeddings to the width of a model."""

import keras

from keras_attn import norms, registry
from keras_attn.initializers import redraw
from keras_attn.ops.checks import check_sizes


@registry.register
class EmbeddingProjection(registry.MaskedLayer):
    """Normalise embeddings, and project them to the width of the layers that read them.

        y = norm(x) W + b

    A table of V tokens then has V E weights in place of V D. Time O(T E D), weights E D + D, and
    those of the norm.

    Use it as `norm` of a `MaskedLanguageModel` whose table is narrower than its layers.

    Args:
        hidden_dim: int. Width D of the outputs.
        norm: value of the norm axis.
        kernel_initializer: of W.

    Call arguments:
        x: (B, T, E), whose mask of Keras is passed on.

    Returns:
        (B, T, D).

    Raises:
        ValueError: if `hidden_dim` < 1, or the norm is unknown.

    Example:
        >>> import keras, keras_attn
        >>> layer = keras_attn.layers.EmbeddingProjection(8)
        >>> layer(keras.ops.ones((2, 3, 5))).shape
        TensorShape([2, 3, 8])

    Differs from the paper: a model drops numbers of y in training, in place of those of the norm.

    Reference: [Lan et al., 2020](https://arxiv.org/abs/1909.11942), section 3.1.
    """

    weight_axes = {"dense/kernel": (), "dense/bias": ()}

    def __init__(
        self, hidden_dim, norm="layer_norm", kernel_initializer="glorot_uniform", **kwargs
    ):
        super().__init__(**kwargs)
        check_sizes(hidden_dim=hidden_dim)
        self.hidden_dim = hidden_dim
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.norm = norms.get(norm, dtype=self.dtype_policy, name="norm")
        self.dense = keras.layers.Dense(
            hidden_dim,
            kernel_initializer=redraw(self.kernel_initializer),
            dtype=self.dtype_policy,
            name="dense",
        )

    def build(self, x_shape):
        registry.build_once(self.norm, x_shape)
        self.dense.build(x_shape)

    def call(self, x):
        return self.dense(self.norm(x))

    def compute_output_shape(self, x_shape):
        return (*x_shape[:-1], self.hidden_dim)
