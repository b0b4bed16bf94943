"""A functional model that classifies an image or a text."""

import keras
from keras import ops

from keras_attn import registry
from keras_attn.models import assembly
from keras_attn.models.model import Model
from keras_attn.ops.checks import check_choice, check_sizes


@registry.register
class Classifier(Model):
    """Predict the class of an image or of a text: p(class | x).

        logits = Pool(Encoder(E[x] + P)) W + b

    A functional `keras.Model`, called with a dict of its input or with the input alone. Its
    features are `keras.Model(model.input, model.get_layer("pool").output)`.

    Args:
        embedding: a `PatchEmbedding`, or a `TokenEmbedding` without an `image_shape`.
        encoder: of the depth axis.
        num_classes: int. Number of classes K.
        position: name or object of the position axis; None for none.
        image_shape: (height, width, channels) of images; None for texts.
        pooling: "first" for the output at the first position, or "mean" for the mean of the outputs
            at all positions but padding.
        dropout: float. Dropout rate of the embeddings.

    Call arguments:
        images: (B, height, width, channels), with an `image_shape`.
        token_ids: int32 (B, T) without one; 0 is padding.

    Returns:
        Logits (B, K), float32.

    Raises:
        ValueError: if `num_classes` < 1, or `pooling` is unknown.

    Example:
        >>> import keras_attn
        >>> from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
        >>> block = TransformerBlock(MultiHeadAttention(2, 4), FeedForward(16))
        >>> model = keras_attn.models.Classifier(
        ...     keras_attn.layers.TokenEmbedding(100, 8), keras_attn.depth.Stack([block]), 3,
        ...     position="sinusoidal", pooling="mean")
        >>> model.output.shape
        (None, 3)

    Differs from the paper: none.

    Reference: [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929), section 3.1, eq. 1 to
        4.
    """

    parts = (
        "embedding",
        "encoder",
        "num_classes",
        "position",
        "image_shape",
        "pooling",
        "dropout",
    )

    def __init__(
        self,
        embedding,
        encoder,
        num_classes,
        position=None,
        image_shape=None,
        pooling="first",
        dropout=0.0,
        **kwargs,
    ):
        assembly.check_layers(embedding=embedding, encoder=encoder)
        check_sizes(num_classes=num_classes)
        position = assembly.position_of(position, embedding)
        drop = keras.layers.Dropout(dropout, dtype=embedding.dtype_policy)
        if image_shape is None:
            inputs = {"token_ids": assembly.token_input("token_ids")}
        else:
            inputs = {"images": keras.Input(tuple(image_shape), name="images")}
        (x,) = inputs.values()
        x = assembly.drop_symbolic(drop, assembly.embed(embedding, position, x))
        x = _Pool(pooling, dtype=embedding.dtype_policy, name="pool")(encoder(x))
        # Outputs of a model are float32 under any policy. Zeros: at first all classes are alike.
        head = keras.layers.Dense(
            num_classes, kernel_initializer="zeros", dtype="float32", name="head"
        )
        super().__init__(inputs=inputs, outputs=head(x), **kwargs)
        self.embedding, self.encoder, self.num_classes = embedding, encoder, num_classes
        self.position, self.image_shape, self.pooling = position, image_shape, pooling
        self.dropout, self.head = dropout, head


class _Pool(keras.layers.Layer):
    """Reduce (B, T, D) to (B, D), by the first position or by the mean of all but padding."""

    def __init__(self, pooling, **kwargs):
        super().__init__(**kwargs)
        check_choice(("first", "mean"), pooling=pooling)
        self.pooling = pooling
        self.supports_masking = True

    def call(self, x, mask=None):
        if self.pooling == "first":
            return x[:, 0]
        dtype = keras.backend.result_type(x.dtype, "float32")
        real = ops.ones(ops.shape(x)[:2], dtype) if mask is None else ops.cast(mask, dtype)
        total = ops.einsum("bt,btd->bd", real, ops.cast(x, dtype))
        count = ops.maximum(ops.sum(real, axis=1, keepdims=True), 1)
        return ops.cast(total / count, x.dtype)

    def compute_mask(self, inputs, previous_mask=None):
        return None

    def compute_output_shape(self, x_shape, mask_shape=None):
        return x_shape[0], x_shape[2]
