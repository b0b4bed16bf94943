"""A functional model with an encoder and a decoder."""

from keras import ops

from keras_attn import norms, registry
from keras_attn.attention.segments import same_segment, segment_positions
from keras_attn.compat.keras_masks import set_keras_mask
from keras_attn.models import assembly
from keras_attn.models.assembly import divide_outputs
from keras_attn.models.model import Model
from keras_attn.ops.dropout import Dropout
from keras_attn.ops.shapes import pad


@registry.register
class EncoderDecoder(Model):
    """Predict a target from a source: `p(y_t | y_<t, source)`.

        logits = Head(Decoder(norm(E[y] + P), Encoder(norm(E[x] + P))))

    By default one token table E serves source, target and output, and there is no norm. A
    functional `keras.Model`, called with a dict of its inputs; `keras_attn.generation` runs its
    layers one target token at a time, by `start` and `step`.

    Args:
        embedding: a `TokenEmbedding`; None for the `target_embedding`.
        position: name or object of the position axis; None for none.
        encoder, decoder: of the depth axis; the decoder's blocks have cross-attention.
        dropout: float. Dropout rate of the embeddings.
        source_position: position of the source, such as that of a smaller image; by default
            `position`.
        head: a layer from the decoder's output to logits, such as a `TokenHead` or a Dense layer;
            by default `logits` of the target's embedding.
        target_embedding: a `TokenEmbedding` of the target; by default that of the `head`, or
            `embedding`.
        norm: value of the norm axis, of which each side has a copy after its positions; None for
            none.
        start_id: int. The token that begins each target, if it is the `pad_id`, as in T5: the first
            position then counts as a token. None if padding begins no target.

    Call arguments:
        source_ids: int32 (B, S), padded with the embedding's `pad_id`, which is 0 by default.
        target_ids: int32 (B, T), padded likewise.
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

    parts = (
        "embedding",
        "position",
        "encoder",
        "decoder",
        "dropout",
        "source_position",
        "head",
        "target_embedding",
        "norm",
        "start_id",
    )
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
        target_embedding=None,
        norm=None,
        start_id=None,
        **kwargs,
    ):
        target_embedding = target_embedding or getattr(head, "embedding", None) or embedding
        embedding = embedding or target_embedding
        assembly.check_layers(embedding=embedding, encoder=encoder, decoder=decoder)
        assembly.check_causal(decoder)
        policy = embedding.dtype_policy
        position = assembly.position_of(position, embedding)
        source_position = assembly.position_of(source_position, embedding, "source_position")
        norm = None if norm is None else norms.get(norm, dtype=policy)
        target_norm = norm
        if norm is not None:  # layers of a model differ in name
            target_norm = type(norm).from_config({**norm.get_config(), "name": "target_norm"})
        drop = Dropout(dropout, dtype=policy, name="drop")
        inputs = {name: assembly.token_input(name) for name in ("source_ids", "target_ids")}
        source = _embed(embedding, source_position or position, norm, inputs["source_ids"])
        target = _embed(target_embedding, position, target_norm, inputs["target_ids"])
        starts_padded = start_id is not None and start_id == target_embedding.pad_id
        if starts_padded:
            target = StartIsReal(dtype=policy, name="start")(target)
        source, target = (assembly.drop_symbolic(drop, x) for x in (source, target))
        hidden = decoder(target, encoder(source))
        logits = target_embedding.logits if head is None else divide_outputs(head)
        super().__init__(inputs=inputs, outputs=logits(hidden), **kwargs)
        self.embedding, self.target_embedding, self.head = embedding, target_embedding, head
        self.position, self.source_position = position, source_position
        self.norm, self.target_norm = norm, target_norm
        self.start_id, self._starts_padded = start_id, starts_padded
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

    @property
    def rewind(self):
        """Function that cuts a cache back to its first slots; None if the decoder has none."""
        return getattr(self.decoder, "rewind", None)

    def start(self, inputs, max_length, padding_mask=None, whole=True):
        """Encode the source (B, S), given as ids or in a dict of inputs.

        Args:
            max_length: int. Number of target tokens; None for a cache that grows.
            padding_mask: bool (B, S); by default True except at the `pad_id`.

        Returns:
            The constants of all steps, which are the keys and values of the encoded source and its
            mask; and the empty cache. Unless it is `whole`, which beams need, it may have sums in
            place of keys.
        """
        source_ids = inputs["source_ids"] if isinstance(inputs, dict) else inputs
        context, mask = self._encode(source_ids, padding_mask)
        constants = {"context": self.decoder.context_cache(context), "mask": mask}
        return constants, self.decoder.initial_cache(ops.shape(context)[0], max_length, whole)

    def step(self, token_ids, constants, cache, positions, last=None, **attention):
        """Return logits (B, T, V) after `token_ids` (B, T), and the new cache.

        Args:
            positions: int (T,). They continue those in the cache, unless `key_positions` are given.
            last: int (B, 1). If given, logits only after the token of that index, (B, 1, V).
        """
        x = self._embed_target(token_ids, positions)
        if self._starts_padded:
            set_keras_mask(x, None)  # by which the start would be padding
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
        source = self._embed_source(source_ids, segment_positions(source_segment_ids))
        source = self.drop(source)
        target = self._embed_target(target_ids, segment_positions(target_segment_ids))
        x = self.decoder(
            self.drop(target),
            self.encoder(source, segment_ids=source_segment_ids),
            context_attention_mask=same_segment(target_segment_ids, source_segment_ids),
            segment_ids=target_segment_ids,
            padding_mask=target_segment_ids > 0,
        )
        return self._logits(x)

    def cross_attention(self, inputs, padding_mask=None):
        """Return the attention of each target token to the source, for inputs as the model's.

        Args:
            padding_mask: bool (B, S), of the source; by default True except at the `pad_id`.

        Returns:
            float32 (B, L, N, T, S), of each head of each of L layers. A row sums to 1, or to 0 if
            the source is empty; of a layer with fewer heads than another, the last heads are 0.
        """
        context, mask = self._encode(inputs["source_ids"], padding_mask)
        target_ids = ops.convert_to_tensor(inputs["target_ids"])
        real = assembly.real_tokens(target_ids, self.target_embedding.pad_id)
        _, scores = self.decoder(
            self._embed_target(target_ids),
            context,
            padding_mask=first_is_real(real) if self._starts_padded else real,
            context_padding_mask=mask,
            return_attention_scores=True,
        )
        heads = [by_sublayer["cross_attention"] for by_sublayer in scores]
        most = max(x.shape[1] for x in heads)
        return ops.stack([pad(x, 0, most - x.shape[1], axis=1) for x in heads], axis=1)

    def _encode(self, source_ids, padding_mask=None):
        """Return the encoded source and its padding mask."""
        source_ids = ops.convert_to_tensor(source_ids)
        if padding_mask is None:
            padding_mask = assembly.real_tokens(source_ids, self.pad_id)
        return self.encoder(self._embed_source(source_ids), padding_mask=padding_mask), padding_mask

    def _embed_source(self, token_ids, positions=None):
        position = self.source_position or self.position
        return _embed(self.embedding, position, self.norm, token_ids, positions)

    def _embed_target(self, token_ids, positions=None):
        return _embed(self.target_embedding, self.position, self.target_norm, token_ids, positions)

    def _logits(self, x):
        return self.target_embedding.logits(x) if self.head is None else self.head(x)


def _embed(embedding, position, norm, token_ids, positions=None):
    x = assembly.embed(embedding, position, token_ids, positions)
    return x if norm is None else norm(x)


def first_is_real(mask):
    """Return a padding mask (B, T) that is True at the first position; None stays None."""
    if mask is None:
        return None
    return ops.concatenate([ops.ones_like(mask[:, :1]), mask[:, 1:]], axis=1)


@registry.register
class StartIsReal(registry.MaskedLayer):
    """Return the embeddings (B, T, D) of targets with a mask that is True at the first position.

    T5 and Marian start their targets with the id of padding.
    """

    def call(self, x):
        return ops.copy(x)  # Keras leaves the mask of a tensor that is returned itself.

    def compute_mask(self, x, previous_mask=None):
        return first_is_real(previous_mask)

    def compute_output_shape(self, x_shape):
        return x_shape
