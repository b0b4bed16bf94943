"""A functional model with an encoder and a decoder."""

import keras
from keras import ops

from keras_attn import registry
from keras_attn.attention.segments import same_segment
from keras_attn.models import assembly
from keras_attn.models.model import Model


@registry.register
class EncoderDecoder(Model):
    """Predict a target from a source: `p(y_t | y_<t, source)`.

        logits = Decoder(E[y] + P, Encoder(E[x] + P)) E^T

    One token table serves source, target and, without a `head`, output. A functional
    `keras.Model`, called with a dict of its inputs; `keras_attn.generation` runs its layers one
    target token at a time, by `start` and `step`.

    Args:
        embedding: a `TokenEmbedding`.
        position: name or object of the position axis; None for none.
        encoder, decoder: of the depth axis; the decoder's blocks have cross-attention.
        dropout: float. Dropout rate of the embeddings.
        source_position: position of the source, such as that of a smaller image; by default
            `position`.
        head: a layer from the output of `decoder` to logits, by default `embedding.logits`.

    Call arguments:
        source_ids: int32 (B, S); 0 is padding.
        target_ids: int32 (B, T); 0 is padding.
        source_segment_ids, target_segment_ids: optional, int32 (B, S) and (B, T), for rows of
            several pairs, as `keras_attn.text.PackedBatches` makes them: 1, 2, .. in the order of
            a row, the same for both sides of a pair, 0 for padding. Each pair then has the logits
            that it has alone in a row: its tokens attend to each other only, and their positions
            begin at 0.

    Returns:
        Logits (B, T, V), float32.

    Raises:
        ValueError: if a layer cannot keep the pairs of a packed row apart, or only one side has
            segment ids.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.create("transformer_tiny", vocabulary_size=100)
        >>> type(model).__name__
        'EncoderDecoder'

    Differs from the paper: none.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3, figure 1.
    """

    parts = ("embedding", "position", "encoder", "decoder", "dropout", "source_position", "head")
    reads_prompt = False
    segment_inputs = {"source_segment_ids": "source_ids", "target_segment_ids": "target_ids"}

    def __init__(
        self,
        embedding,
        position,
        encoder,
        decoder,
        dropout=0.0,
        source_position=None,
        head=None,
        **kwargs,
    ):
        embedding = embedding or getattr(head, "embedding", None)
        assembly.check_layers(embedding=embedding, encoder=encoder, decoder=decoder)
        position = assembly.position_of(position, embedding)
        source_position = assembly.position_of(source_position, embedding)
        drop = keras.layers.Dropout(dropout, dtype=embedding.dtype_policy)
        inputs = {name: assembly.token_input(name) for name in ("source_ids", "target_ids")}
        source = assembly.embed(embedding, source_position or position, inputs["source_ids"])
        target = assembly.embed(embedding, position, inputs["target_ids"])
        source, target = (assembly.drop_symbolic(drop, x) for x in (source, target))
        logits = embedding.logits if head is None else head
        outputs = logits(decoder(target, encoder(source)))
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        self.embedding, self.head = embedding, head
        self.position, self.source_position = position, source_position
        self.encoder, self.decoder = encoder, decoder
        self.dropout, self.drop = dropout, drop

    @property
    def max_length(self):
        """Maximum number of target tokens; None for no limit."""
        return assembly.max_num_positions(self.position, self.decoder)

    @property
    def max_source_length(self):
        """Maximum number of source tokens; None for no limit."""
        return assembly.max_num_positions(self.source_position or self.position, self.encoder)

    @property
    def keeps_sums(self):
        """True if a cache that is not `whole` has the same size for any number of tokens."""
        return getattr(self.decoder, "keeps_sums", False)

    def start(self, inputs, max_length, whole=True):
        """Encode the source (B, S), given as ids or in a dict of inputs.

        Returns:
            The constants of all steps, which are the keys and values of the encoded source and its
            mask; and the empty cache for `max_length` target tokens, or for None one that grows.
            Unless it is `whole`, which beams need, it may have sums in place of keys.
        """
        source_ids = inputs["source_ids"] if isinstance(inputs, dict) else inputs
        context, mask = self._encode(source_ids)
        constants = {"context": self.decoder.context_cache(context), "mask": mask}
        return constants, self.decoder.initial_cache(ops.shape(mask)[0], max_length, whole)

    def step(self, token_ids, constants, cache, positions, last=None, **attention):
        """Return logits (B, T, V) after `token_ids` (B, T), and the new cache.

        Args:
            positions: int (T,). They continue those in the cache, unless `key_positions` are given.
            last: int (B, 1). If given, logits only after the token of that index, (B, 1, V).
        """
        x = assembly.embed(self.embedding, self.position, token_ids, positions)
        if "key_positions" in attention:  # otherwise they are the last of the cache
            attention["query_positions"] = positions
        x, cache = self.decoder(
            x,
            context_padding_mask=constants["mask"],
            context_cache=constants["context"],
            cache=cache,
            **attention,
        )
        return self._logits(assembly.last_states(x, last)), cache

    def packed(self, source_ids, target_ids, source_segment_ids, target_segment_ids):
        """Return logits (B, T, V) of packed rows, whose pairs do not see each other."""
        assembly.check_packable(self.encoder, self.decoder)
        source_position = self.source_position or self.position
        source = assembly.embed_rows(self, source_position, source_ids, source_segment_ids)
        target = assembly.embed_rows(self, self.position, target_ids, target_segment_ids)
        x = self.decoder(
            target,
            self.encoder(source, segment_ids=source_segment_ids),
            context_attention_mask=same_segment(target_segment_ids, source_segment_ids),
            segment_ids=target_segment_ids,
        )
        return self._logits(x)

    def cross_attention(self, inputs):
        """Return the attention of each target token to the source, for inputs as the model's.

        Returns:
            float32 (B, L, T, S), the mean over the heads of each of L layers. A row sums to 1, or
            to 0 if the source is empty.
        """
        context, mask = self._encode(inputs["source_ids"])
        target_ids = ops.convert_to_tensor(inputs["target_ids"])
        _, scores = self.decoder(
            assembly.embed(self.embedding, self.position, target_ids),
            context,
            padding_mask=ops.not_equal(target_ids, 0),
            context_padding_mask=mask,
            return_attention_scores=True,
        )
        return ops.stack([ops.mean(of["cross_attention"], axis=1) for of in scores], axis=1)

    def _logits(self, x):
        return self.embedding.logits(x) if self.head is None else self.head(x)

    def _encode(self, source_ids):
        """Return the encoded source and its padding mask."""
        source_ids = ops.convert_to_tensor(source_ids)
        mask = ops.not_equal(source_ids, 0)
        x = assembly.embed(self.embedding, self.source_position or self.position, source_ids)
        return self.encoder(x, padding_mask=mask), mask
