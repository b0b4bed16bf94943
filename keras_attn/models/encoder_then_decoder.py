"""The two stacks of an encoder-decoder as one, which reads a text for classes or answers."""

from keras import ops

from keras_attn import norms, positions, registry
from keras_attn.attention.inputs import keras_mask
from keras_attn.layers.pooling import Pool
from keras_attn.models import assembly
from keras_attn.ops.dropout import Dropout


@registry.register
class EncoderThenDecoder(registry.MaskedLayer):
    """Encode a text, and decode it from its own tokens, one position later.

        y = Decoder(norm(s + P), Encoder(norm(x + P'))),   s = E[start], x_1 .. x_{T-1}

    y_t depends on the tokens before t by the decoder, and on all tokens by the encoder. Cost: the
    sum of both stacks. The parts are those of an `EncoderDecoder`, and have its names.

    Use it as the `encoder` of a `Classifier`, or of a `MaskedLanguageModel` with an `AnswerHead`.
    These have no position, norm or dropout of their own then.

    Args:
        embedding: the `TokenEmbedding` of the model, which has that of the encoder by default.
        encoder, decoder: of the depth axis; the decoder's blocks have cross-attention.
        position: name or object of the position axis, P; None for none.
        source_position: P'; by default `position`.
        norm: value of the norm axis, of which each side has a copy; None for none.
        dropout: float. Dropout rate of what both stacks read.
        start_id: int. The token before the first one; None for the last token of each text, as
            mBART has it.

    Call arguments:
        x: (B, T, D), embeddings of tokens.
        padding_mask: bool (B, T), True where a token is real; by default Keras's mask of `x`.

    Returns:
        (B, T, D).

    Raises:
        ValueError: if the decoder lets a position depend on a later one.

    Example:
        >>> import keras_attn
        >>> sides = keras_attn.models.t5(100, num_layers=1, num_heads=2, hidden_dim=8)
        >>> both = keras_attn.models.EncoderThenDecoder(
        ...     sides.embedding, sides.encoder, sides.decoder, start_id=0)
        >>> pooling = keras_attn.layers.Pool("last", token_id=1)
        >>> model = keras_attn.models.Classifier(None, both, 3, pooling=pooling)
        >>> model.output.shape
        (None, 3)

    Differs from the paper: none.

    Reference: [Lewis et al., 2020](https://arxiv.org/abs/1910.13461), section 3.1 and 3.2.
    """

    def __init__(
        self,
        embedding,
        encoder,
        decoder,
        position=None,
        source_position=None,
        norm=None,
        dropout=0.0,
        start_id=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        parts = {"embedding": embedding, "encoder": encoder, "decoder": decoder}
        parts = {name: registry.revive(part) for name, part in parts.items()}
        assembly.check_layers(**parts)
        assembly.check_causal(parts["decoder"])
        self.embedding, self.encoder, self.decoder = parts.values()
        policy = self.embedding.dtype_policy

        def get(axis, value):
            return None if value is None else axis.get(value, dtype=policy)

        self.position = get(positions, position)
        self.source_position = get(positions, source_position)
        self.norm = get(norms, norm)
        self.target_norm = None if self.norm is None else registry.copy(self.norm)
        self.dropout, self.start_id = dropout, start_id
        self.drop = Dropout(dropout, dtype=policy)
        self.last = Pool("last", dtype=policy) if start_id is None else None

    @property
    def target_embedding(self):
        """The embedding of the decoder's tokens, which is that of the encoder's."""
        return self.embedding

    def build(self, x_shape):
        registry.build_once(self.embedding, x_shape[:-1])
        parts = self.position, self.source_position, self.norm, self.target_norm, self.last
        for part in parts:
            if part is not None:
                registry.build_once(part, x_shape)
        registry.build_once(self.encoder, x_shape)
        registry.build_once(self.decoder, x_shape, x_shape)

    def call(self, x, padding_mask=None, training=None):
        mask = keras_mask(x) if padding_mask is None else padding_mask
        # Without a mask: positions see those before them, which are no padding.
        target = ops.concatenate([self._start(x, mask), x], axis=1)[:, :-1]
        source = self._place(x, self.source_position or self.position, self.norm, training)
        target = self._place(target, self.position, self.target_norm, training)
        context = self.encoder(source, padding_mask=mask, training=training)
        return self.decoder(target, context, context_padding_mask=mask, training=training)

    def _start(self, x, mask):
        """Return the embedding (B, 1, D) of the token before the first one."""
        if self.last is not None:
            return ops.expand_dims(self.last(x, mask=mask), 1)
        return self.embedding(ops.full((ops.shape(x)[0], 1), self.start_id, dtype="int32"))

    def _place(self, x, position, norm, training):
        x = x if position is None else position(x)
        return self.drop(x if norm is None else norm(x), training=training)

    def compute_output_shape(self, x_shape):
        return x_shape
