"""Functional models with an encoder: for masked tokens, and for classes of images or texts."""

import keras
from keras import ops

from keras_attn import registry
from keras_attn.attention.segments import segment_positions
from keras_attn.layers.pooling import EndIsPadding, Pool
from keras_attn.models import assembly
from keras_attn.models.assembly import divide_outputs
from keras_attn.models.model import Model
from keras_attn.ops.checks import check_sizes, check_that
from keras_attn.ops.dropout import Dropout


@registry.register
class MaskedLanguageModel(Model):
    """Predict masked tokens from both sides: p(x_t | x with t masked).

        logits = Head(Encoder(LN(E[x] + P + S)))

    A functional `keras.Model`, called with a dict of its inputs. The features below the head are
    `models.Part(model.input, model.encoder_output)`.

    Args:
        embedding: a `TokenEmbedding`; None for that of the `head` or the `encoder`.
        position: name or object of the position axis; None for none.
        segment: a `SegmentEmbedding`; None for a model without `segment_ids`.
        norm: the normalisation of the embeddings; None for none.
        encoder: of the depth axis.
        head: a `MaskedTokenHead` of the same `embedding`; None for `embedding.logits`.
        dropout: float. Dropout rate of the embeddings.

    Call arguments:
        token_ids: int32 (B, T), padded with the embedding's `pad_id`, which is 0 by default.
        segment_ids: optional, int32 (B, T). With a `segment` the segments of a text, such as the
            two sentences of a pair, by default all 0. Without one the documents of packed rows, as
            `CausalLanguageModel` takes them: each then has the logits that it has alone in a row.

    Returns:
        Logits (B, T, V), float32.

    Raises:
        ValueError: if a layer cannot keep the documents of a packed row apart.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.bert(100, num_layers=1, num_heads=2, hidden_dim=8)
        >>> type(model).__name__
        'MaskedLanguageModel'

    Differs from the paper: no pooler and no next-sentence head.

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3.
    """

    parts = ("embedding", "position", "segment", "norm", "encoder", "head", "dropout")

    def __init__(self, embedding, position, segment, norm, encoder, head, dropout=0.0, **kwargs):
        embedding = assembly.embedding_of(embedding, head=head, encoder=encoder)
        assembly.check_layers(embedding=embedding, encoder=encoder)
        position = assembly.position_of(position, embedding)
        drop = Dropout(dropout, dtype=embedding.dtype_policy, name="drop")
        inputs = {"token_ids": assembly.token_input("token_ids")}
        x = assembly.embed(embedding, position, inputs["token_ids"])
        if segment is not None:
            inputs["segment_ids"] = assembly.token_input("segment_ids", optional=True)
            x = segment(x, inputs["segment_ids"])
        x = assembly.drop_symbolic(drop, x if norm is None else norm(x))
        logits = embedding.logits if head is None else divide_outputs(head)
        states = encoder(x)
        super().__init__(inputs=inputs, outputs=logits(states), **kwargs)
        self.encoder_output = states
        self.embedding, self.position, self.segment = embedding, position, segment
        self.norm, self.encoder, self.head = norm, encoder, head
        self.dropout, self.drop = dropout, drop

    @property
    def max_length(self):
        """Maximum number of tokens; None for no limit."""
        return assembly.max_num_positions(self.position, self.encoder)

    @property
    def segment_inputs(self):
        """For an input of segment ids that is none of the graph, the input that it belongs to."""
        return {} if "segment_ids" in self.input else {"segment_ids": "token_ids"}

    def packed(self, token_ids, segment_ids):
        """Return logits (B, T, V) of packed rows, whose documents do not see each other."""
        assembly.check_packable(self.encoder)
        positions = segment_positions(segment_ids)
        x = assembly.embed(self.embedding, self.position, token_ids, positions)
        x = self.drop(x if self.norm is None else self.norm(x))
        x = self.encoder(x, segment_ids=segment_ids)
        return self.embedding.logits(x) if self.head is None else self.head(x)


@registry.register
class Classifier(Model):
    """Predict the class of an image, of a series of numbers or of a text: p(class | x).

        logits = Pooler(Pool(Encoder(norm(E[x] + P + S)))) W + b

    A functional `keras.Model`, called with a dict of its input or with the input alone. Its
    features are `models.Part(model.input, model.get_layer("pool").output)`.

    Args:
        embedding: a `PatchEmbedding` with an `image_shape`; a `SeriesEmbedding`, or any layer from
            numbers (B, T, C) to vectors (B, T, D), with a `series_shape`; else a `TokenEmbedding`,
            or None for that of the `encoder`.
        encoder: of the depth axis.
        num_classes: int. Number of classes K; None for a model without W, whose output are the
            features.
        position: name or object of the position axis; None for none.
        image_shape: (height, width, channels) of images; None for texts.
        pooling: a name of `layers.Pool`, a list of them, or a `Pool`. "first" is the output at the
            first position, "last" that at the last token, which a causal encoder needs, "mean" the
            mean of all tokens. For "last" padding is at the end only: its id before another token
            is a token.
        dropout: float. Dropout rate of the embeddings.
        segment: a `SegmentEmbedding`; None for a model without `segment_ids`.
        norm: the normalisation of the embeddings; None for none.
        pooler: a layer from (B, D), such as BERT's dense layer, or a `keras.Sequential` of several;
            None for none.
        use_bias: bool. If True, the classes have the bias b.
        multi_label: bool. If True, an input may have several classes at once, or none: exports give
            sigmoids of the logits in place of their softmax.
        series_shape: (times, channels) of series of numbers, times None for any; None for others.
            Then `pooling` may be a `SeriesPool`, by which rows of separate channels are joined.

    Call arguments:
        images: (B, height, width, channels), with an `image_shape`.
        values: float (B, times, channels), with a `series_shape`; NaN where a value is missing.
        token_ids: int32 (B, T) without either, padded with the embedding's `pad_id`.
        segment_ids: optional with a `segment`, int32 (B, T); by default all 0.
        prompt_lengths: optional with a `Pool(include_prompt=False)`, int32 (B,): of the tokens
            before each text, that at its start included.

    Returns:
        Logits (B, K), or features (B, D) without classes, float32.

    Raises:
        ValueError: if `num_classes` < 1, `series_shape` is no pair, or `pooling` is unknown.

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
        "multi_label",
        "series_shape",
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
        multi_label=False,
        series_shape=None,
        **kwargs,
    ):
        embedding = assembly.embedding_of(embedding, encoder=encoder)
        assembly.check_layers(embedding=embedding, encoder=encoder)
        if num_classes is not None:
            check_sizes(num_classes=num_classes)
        position = assembly.position_of(position, embedding)
        drop = Dropout(dropout, dtype=embedding.dtype_policy, name="drop")
        if series_shape is not None:
            check_that(image_shape is None, "None beside `series_shape`", image_shape=image_shape)
            fit = isinstance(series_shape, (list, tuple)) and len(series_shape) == 2
            fit = fit and series_shape[0] != 0 and series_shape[1] not in (None, 0)
            check_that(fit, "(times, channels), times None for any", series_shape=series_shape)
            series_shape = tuple(series_shape)
            inputs = {"values": keras.Input(series_shape, name="values")}
        elif image_shape is None:
            inputs = {"token_ids": assembly.token_input("token_ids")}
        else:
            image_shape = tuple(image_shape)  # a file holds a list
            inputs = {"images": keras.Input(image_shape, name="images")}
        (x,) = inputs.values()
        x = assembly.embed(embedding, position, x)
        pool = Pool.of(pooling, embedding.dtype_policy)
        if pool.padding_at_end:
            x = EndIsPadding(dtype=embedding.dtype_policy, name="end")(x)
        if segment is not None:
            inputs["segment_ids"] = assembly.token_input("segment_ids", optional=True)
            x = segment(x, inputs["segment_ids"])
        x = assembly.drop_symbolic(drop, x if norm is None else norm(x))
        if not pool.include_prompt:
            lengths = keras.Input((), dtype="int32", name="prompt_lengths", optional=True)
            inputs["prompt_lengths"] = lengths
        states = encoder(x)
        token_ids = None if pool.token_id is None else inputs.get("token_ids")
        x = pool(states, inputs.get("prompt_lengths"), token_ids=token_ids)
        x = x if pooler is None else pooler(x)
        # Outputs of a model are float32 under any policy. Zeros: at first all classes are alike.
        head = None
        if num_classes is not None:
            head = keras.layers.Dense(
                num_classes,
                use_bias=use_bias,
                kernel_initializer="zeros",
                dtype="float32",
                name="head",
            )
        outputs = ops.cast(x, "float32") if head is None else divide_outputs(head)(x)
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        self.encoder_output = states
        self.embedding, self.encoder, self.num_classes = embedding, encoder, num_classes
        self.position, self.image_shape, self.pooling = position, image_shape, pooling
        self.dropout, self.head = dropout, head
        self.segment, self.norm, self.pooler = segment, norm, pooler
        self.use_bias, self.multi_label = use_bias, bool(multi_label)
        self.series_shape = series_shape

    @property
    def max_length(self):
        """Maximum number of tokens; None for no limit."""
        return assembly.max_num_positions(self.position, self.encoder)
