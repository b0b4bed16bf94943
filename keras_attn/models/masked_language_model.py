"""A functional model that fills in masked tokens."""

import keras

from keras_attn import registry
from keras_attn.attention.segments import segment_positions
from keras_attn.models import assembly
from keras_attn.models.assembly import divide_outputs
from keras_attn.models.model import Model


@registry.register
class MaskedLanguageModel(Model):
    """Predict masked tokens from both sides: p(x_t | x with t masked).

        logits = Head(Encoder(LN(E[x] + P + S)))

    A functional `keras.Model`, called with a dict of its inputs. The features below the head are
    `keras.Model(model.input, model.get_layer("encoder").output)`.

    Args:
        embedding: a `TokenEmbedding`; None for that of the `head`.
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
        embedding = assembly.embedding_of(embedding, head)
        assembly.check_layers(embedding=embedding, encoder=encoder)
        position = assembly.position_of(position, embedding)
        drop = keras.layers.Dropout(dropout, dtype=embedding.dtype_policy)
        inputs = {"token_ids": assembly.token_input("token_ids")}
        x = assembly.embed(embedding, position, inputs["token_ids"])
        if segment is not None:
            inputs["segment_ids"] = assembly.token_input("segment_ids", optional=True)
            x = segment(x, inputs["segment_ids"])
        x = assembly.drop_symbolic(drop, x if norm is None else norm(x))
        logits = embedding.logits if head is None else divide_outputs(head)
        super().__init__(inputs=inputs, outputs=logits(encoder(x)), **kwargs)
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
