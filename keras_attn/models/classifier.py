"""A functional model that classifies an image or a text."""

import keras
from keras import ops

from keras_attn import registry
from keras_attn.models import assembly
from keras_attn.models.assembly import divide_outputs
from keras_attn.models.end_mask import EndIsPadding, last_of
from keras_attn.models.model import Model
from keras_attn.ops.checks import check_choice, check_sizes


@registry.register
class Classifier(Model):
    """Predict the class of an image or of a text: p(class | x).

        logits = Pooler(Pool(Encoder(norm(E[x] + P + S)))) W + b

    A functional `keras.Model`, called with a dict of its input or with the input alone. Its
    features are `keras.Model(model.input, model.get_layer("pool").output)`.

    Args:
        embedding: a `PatchEmbedding`, or a `TokenEmbedding` without an `image_shape`.
        encoder: of the depth axis.
        num_classes: int. Number of classes K; None for a model without W, whose output are the
            features.
        position: name or object of the position axis; None for none.
        image_shape: (height, width, channels) of images; None for texts.
        pooling: "first" for the output at the first position, "last" for that at the last token,
            which a causal encoder needs, or "mean" for the mean at all positions but padding. For
            "last" padding is at the end only: its id before another token is a token.
        dropout: float. Dropout rate of the embeddings.
        segment: a `SegmentEmbedding`; None for a model without `segment_ids`.
        norm: the normalisation of the embeddings; None for none.
        pooler: a layer from (B, D), such as BERT's dense layer; None for none.
        use_bias: bool. If True, the classes have the bias b.

    Call arguments:
        images: (B, height, width, channels), with an `image_shape`.
        token_ids: int32 (B, T) without one, padded with the embedding's `pad_id`.
        segment_ids: optional with a `segment`, int32 (B, T); by default all 0.

    Returns:
        Logits (B, K), or features (B, D) without classes, float32.

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
        "segment",
        "norm",
        "pooler",
        "use_bias",
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
        segment=None,
        norm=None,
        pooler=None,
        use_bias=True,
        **kwargs,
    ):
        assembly.check_layers(embedding=embedding, encoder=encoder)
        if num_classes is not None:
            check_sizes(num_classes=num_classes)
        position = assembly.position_of(position, embedding)
        drop = keras.layers.Dropout(dropout, dtype=embedding.dtype_policy)
        if image_shape is None:
            inputs = {"token_ids": assembly.token_input("token_ids")}
        else:
            image_shape = tuple(image_shape)  # a file holds a list
            inputs = {"images": keras.Input(image_shape, name="images")}
        (x,) = inputs.values()
        x = assembly.embed(embedding, position, x)
        if pooling == "last":
            x = EndIsPadding(dtype=embedding.dtype_policy, name="end")(x)
        if segment is not None:
            inputs["segment_ids"] = assembly.token_input("segment_ids", optional=True)
            x = segment(x, inputs["segment_ids"])
        x = assembly.drop_symbolic(drop, x if norm is None else norm(x))
        x = _Pool(pooling, dtype=embedding.dtype_policy, name="pool")(encoder(x))
        x = x if pooler is None else pooler(x)
        # Outputs of a model are float32 under any policy. Zeros: at first all classes are alike.
        head = None
        if num_classes is not None:
            head = keras.layers.Dense(
                *(num_classes, None, use_bias),
                kernel_initializer="zeros",
                dtype="float32",
                name="head",
            )
        outputs = ops.cast(x, "float32") if head is None else divide_outputs(head)(x)
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        self.embedding, self.encoder, self.num_classes = embedding, encoder, num_classes
        self.position, self.image_shape, self.pooling = position, image_shape, pooling
        self.dropout, self.head = dropout, head
        self.segment, self.norm, self.pooler = segment, norm, pooler
        self.use_bias = use_bias

    @property
    def max_length(self):
        """Maximum number of tokens; None for no limit."""
        return assembly.max_num_positions(self.position, self.encoder)


class _Pool(keras.layers.Layer):
    """Reduce (B, T, D) to (B, D), by one position or by the mean of all but padding."""

    def __init__(self, pooling, **kwargs):
        super().__init__(**kwargs)
        check_choice(("first", "last", "mean"), pooling=pooling)
        self.pooling = pooling
        self.supports_masking = True

    def call(self, x, mask=None):
        if self.pooling == "first":
            # A sum over a slice: `x[:, 0]` fails for texts without tokens.
            return ops.sum(x[:, :1], axis=1)
        dtype = keras.backend.result_type(x.dtype, "float32")
        real = ops.ones(ops.shape(x)[:2], "bool") if mask is None else mask
        real = ops.cast(last_of(real) if self.pooling == "last" else real, dtype)
        total = ops.einsum("bt,btd->bd", real, ops.cast(x, dtype))
        count = ops.maximum(ops.sum(real, axis=1, keepdims=True), 1)
        return ops.cast(total / count, x.dtype)

    def compute_mask(self, inputs, previous_mask=None):
        return None

    def compute_output_shape(self, x_shape, mask_shape=None):
        return x_shape[0], x_shape[2]
