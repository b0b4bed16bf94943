"""Heads behind one more dense layer."""

import keras
from keras import ops

from keras_attn import norms, registry
from keras_attn.initializers import redraw
from keras_attn.ops.activations import activate, get_activation
from keras_attn.ops.checks import check_sizes, check_that


@registry.register
class HeadTransform(registry.MaskedLayer):
    """Transform hidden states before a head.

        y = norm(activation(x W + b))

    Time O(T D^2), weights D^2 + D, and those of the norm.

    Use it as the `pooler` of a `Classifier`, or in a `TransformedHead`.

    Args:
        hidden_dim: int. Width of y.
        activation: name or function.
        norm: value of the norm axis.
        use_bias: bool. If False, there is no b.
        kernel_initializer: of W.

    Call arguments:
        x: (B, D) or (B, T, D).

    Returns:
        (B, hidden_dim) or (B, T, hidden_dim).

    Raises:
        ValueError: if `hidden_dim` < 1, or the norm is unknown.

    Example:
        >>> import keras, keras_attn
        >>> keras_attn.layers.HeadTransform(5)(keras.ops.ones((2, 3, 8))).shape
        TensorShape([2, 3, 5])

    Differs from the paper: none with the norm of ModernBERT, and none with "none" for ELECTRA.

    Reference: [Clark et al., 2020](https://arxiv.org/abs/2003.10555), section 2.
    """

    weight_axes = {"dense/kernel": (), "dense/bias": ()}

    def __init__(
        self,
        hidden_dim,
        activation="gelu",
        norm="none",
        use_bias=True,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_sizes(hidden_dim=hidden_dim)
        self.hidden_dim = hidden_dim
        self.activation = get_activation(activation)
        self.use_bias = bool(use_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.norm = norms.get(norm, dtype=self.dtype_policy, name="norm")
        self.dense = keras.layers.Dense(
            hidden_dim,
            use_bias=self.use_bias,
            kernel_initializer=redraw(self.kernel_initializer),
            dtype=self.dtype_policy,
            name="dense",
        )

    def build(self, x_shape):
        self.dense.build(x_shape)
        registry.build_once(self.norm, (*x_shape[:-1], self.hidden_dim))

    def call(self, x):
        return self.norm(activate(self.activation, self.dense(x)))

    def compute_output_shape(self, x_shape):
        return (*x_shape[:-1], self.hidden_dim)


@registry.register
class TransformedHead(registry.MaskedLayer):
    """Apply a head to transformed hidden states.

        y = head(transform(x))

    Cost: the sum of both.

    Use it as the `head` of a `MaskedLanguageModel` that tags tokens by two layers.

    Args:
        transform: a layer from (B, T, D), such as a `HeadTransform`.
        head: a dense layer, such as an `AnswerHead`.

    Call arguments:
        x: (B, T, D).

    Returns:
        The output of the head, (B, T, `units`), float32.

    Raises:
        ValueError: if one of both is no layer, or the head has no `units`.

    Example:
        >>> import keras, keras_attn
        >>> from keras_attn.layers import HeadTransform, TransformedHead
        >>> head = TransformedHead(HeadTransform(8), keras.layers.Dense(1))
        >>> head(keras.ops.ones((2, 3, 8))).shape
        TensorShape([2, 3, 1])

    Differs from the paper: none.

    Reference: [Clark et al., 2020](https://arxiv.org/abs/2003.10555), section 2: the head of the
        discriminator, with one unit.
    """

    def __init__(self, transform, head, **kwargs):
        super().__init__(**kwargs)
        transform, head = registry.revive(transform), registry.revive(head)
        is_layer = isinstance(transform, keras.layers.Layer)
        check_that(is_layer, "a Keras layer", transform=transform)
        check_that(hasattr(head, "units"), "a dense layer", head=head)
        self.transform, self.head = transform, head

    @property
    def units(self):
        """Number of numbers for each token."""
        return self.head.units

    def build(self, x_shape):
        registry.build_once(self.transform, x_shape)
        registry.build_once(self.head, self.transform.compute_output_shape(x_shape))

    def call(self, x):
        return ops.cast(self.head(self.transform(x)), "float32")

    def compute_output_spec(self, x):
        return keras.KerasTensor((*x.shape[:-1], self.units), dtype="float32")
