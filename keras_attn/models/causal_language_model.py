"""A functional model that predicts the next token."""

import keras
from keras import ops

from keras_attn import axis, positions
from keras_attn.models.model import Model, restore


@axis.register
class CausalLanguageModel(Model):
    """Predicts each token from those before it: p(x_t | x_<t).

        logits = Depth(E[x] + P) E^T

    A functional `keras.Model`; `start` and `step` run the same layers with a cache, for
    `keras_attn.generation`.

    Args:
        embedding: a `TokenEmbedding`.
        position: name or object of the position axis.
        depth: of the depth axis; its blocks' pattern is causal.
        dropout: float. Dropout rate of the embeddings.

    Call arguments:
        `token_ids` (B, T) int32; 0 is padding.

    Returns:
        Logits (B, T, V), float32.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.gpt(vocabulary_size=100, num_layers=1, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16, max_length=32)
        >>> type(model).__name__
        'CausalLanguageModel'

    Differs from the paper: none.

    Reference: [Radford et al., 2018](https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf),
        section 3.1, eq. 1 and 2.
    """

    parts = ("embedding", "position", "depth", "dropout")
    reads_prompt = True

    def __init__(self, embedding, position, depth, dropout=0.0, **kwargs):
        embedding, depth = restore(embedding, depth)
        position = positions.get(position, dtype=embedding.dtype_policy)
        drop = keras.layers.Dropout(dropout, dtype=embedding.dtype_policy)
        token_ids = keras.Input((None,), dtype="int32", name="token_ids")
        hidden = depth(drop(position(embedding(token_ids))))
        super().__init__(
            inputs={"token_ids": token_ids}, outputs=embedding.logits(hidden), **kwargs
        )
        self.embedding = embedding
        self.position = position
        self.depth = depth
        self.dropout = dropout

    def start(self, inputs, max_length):
        """The empty cache for `max_length` tokens, prompts included, and no constants.

        With a `max_length` of None the cache grows.
        """
        token_ids = inputs["token_ids"] if isinstance(inputs, dict) else inputs
        return {}, self.depth.initial_cache(ops.shape(token_ids)[0], max_length)

    def step(self, token_ids, constants, cache, positions, last=None, **attention):
        """Logits (B, T, V) after `token_ids` (B, T) at `positions` (T,) or (B, T); new cache.

        With `last` (B, 1) only the logits after the token of that index, (B, 1, V).
        """
        x = self.position(self.embedding(token_ids), positions)
        x, cache = self.depth(x, cache=cache, query_positions=positions, **attention)
        if last is not None:
            x = ops.take_along_axis(x, last[..., None], axis=1)
        return self.embedding.logits(x), cache
