"""A functional model that predicts the next token."""

import numpy as np
from keras import ops

from keras_attn import registry
from keras_attn.attention.inputs import keras_mask
from keras_attn.attention.segments import segment_positions
from keras_attn.models import assembly
from keras_attn.models.assembly import divide_outputs
from keras_attn.models.model import Model
from keras_attn.ops.checks import check_that
from keras_attn.ops.dropout import Dropout
from keras_attn.patterns import AdaptiveSpan


@registry.register
class CausalLanguageModel(Model):
    """Predict each token from those before it: `p(x_t | x_<t)`.

        logits = Depth(E[x] + P) E^T

    A functional `keras.Model`, called with a dict of its inputs; `keras_attn.generation` runs its
    layers with a cache, by `start` and `step`.

    With a `memory` the model reads a text segment by segment, and the memory is an input and an
    output; `keras_attn.memory.StatefulSegments` keeps it between the batches of `fit`. Absolute
    positions would restart in each segment, so use relative scores and `position=None`. Generation
    keeps the keys of all tokens, like an unlimited memory. A model with another memory shares the
    weights: `CausalLanguageModel(model.embedding, model.depth, memory=other)`.

    Args:
        embedding: a `TokenEmbedding`; None for the `embedding` of the `head`.
        depth: of the depth axis; its blocks' pattern is causal.
        position: name or object of the position axis; None for none.
        memory: a `keras_attn.memory.Memory`, such as a `SegmentMemory`, for a `Stack`; None for
            none.
        dropout: float. Dropout rate of the embeddings.
        head: a layer from the output of `depth` to logits, by default `embedding.logits`. The
            losses of an `AdaptiveSoftmax`, without all logits, are
            `model.head(model.depth.output, labels)`.

    Call arguments:
        token_ids: int32 (B, T), padded with the embedding's `pad_id`, which is 0 by default. A
            model without one reads any id as a token: padding at the end changes no token before.
        memory, memory_length: with a memory, (B, L, M, D) and int32 (B,), at first from
            `initial_memory`; more if the memory's state has more.
        segment_ids: optional without a memory, int32 (B, T), for rows of several sequences, as
            `keras_attn.text.PackedBatches` makes them: 1, 2, .. in the order of a row, 0 for
            padding. Each sequence then has the logits that it has alone in a row: it attends to
            itself only, and its positions begin at 0.

    Returns:
        Logits (B, T, V), float32. With a memory a dict of `logits` and the next segment's `memory`
        and `memory_length`.

    Raises:
        ValueError: if a pattern in `depth` is not causal, `depth` accepts no memory, there is no
            embedding, or a layer cannot keep the sequences of a packed row apart.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.gpt(100, num_layers=1, num_heads=2, hidden_dim=8)
        >>> type(model).__name__
        'CausalLanguageModel'

    Differs from the paper: none.

    Reference: [Radford et al., 2018](https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf),
        section 3.1, eq. 1 and 2; with a memory
        [Dai et al., 2019](https://arxiv.org/abs/1901.02860), section 3.2.
    """

    parts = ("embedding", "depth", "position", "memory", "dropout", "head")
    reads_prompt = True
    max_source_length = None  # it reads no source
    segment_inputs = {"segment_ids": "token_ids"}

    def __init__(
        self, embedding, depth, position=None, memory=None, dropout=0.0, head=None, **kwargs
    ):
        embedding = assembly.embedding_of(embedding, head=head)
        assembly.check_layers(embedding=embedding, depth=depth)
        if memory is not None:
            assembly.check_memory(memory)
        assembly.check_causal(depth)
        position = assembly.position_of(position, embedding)
        drop = Dropout(dropout, dtype=embedding.dtype_policy, name="drop")
        logits = embedding.logits if head is None else divide_outputs(head)
        inputs = {"token_ids": assembly.token_input("token_ids")}
        x = assembly.embed(embedding, position, inputs["token_ids"])
        x = assembly.drop_symbolic(drop, x)
        if memory is None:
            outputs = logits(depth(x))
        else:
            state = assembly.memory_inputs(memory, depth, embedding.hidden_dim)
            inputs.update(state)
            hidden, read = depth(x, **assembly.slots_of(state))
            state = memory.extend(state, read, keras_mask(x), depth)
            outputs = {"logits": logits(hidden), **state}
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        self.embedding, self.depth, self.position = embedding, depth, position
        self.memory, self.dropout, self.drop = memory, dropout, drop
        self.head = head

    @property
    def max_length(self):
        """Maximum number of tokens, prompt included; None for no limit."""
        return assembly.max_num_positions(self.position, self.depth)

    def initial_memory(self, batch_size):
        """Return the memory before the first segment: `memory`, `memory_length` and others."""
        if self.memory is None:
            raise ValueError("`initial_memory` needs a model with a memory. Received: memory=None.")
        _, num_layers, _, width = self.input["memory"].shape
        return self.memory.initial(batch_size, num_layers, width, self.depth.compute_dtype)

    @property
    def keeps_sums(self):
        """True if a cache that is not `whole` has the same size for any number of tokens."""
        return getattr(self.depth, "keeps_sums", False)

    @property
    def rewind(self):
        """Function that cuts a cache back to its first slots; None if the depth has none."""
        return getattr(self.depth, "rewind", None)

    def start(self, inputs, max_length, padding_mask=None, whole=True):
        """Return no constants, and the empty cache for `max_length` tokens; for None it grows.

        Unless it is `whole`, which beams need, it may have sums in place of keys.
        """
        token_ids = inputs["token_ids"] if isinstance(inputs, dict) else inputs
        return {}, self.depth.initial_cache(ops.shape(token_ids)[0], max_length, whole)

    def step(self, token_ids, constants, cache, positions, last=None, **attention):
        """Return logits (B, T, V) after `token_ids` (B, T), and the new cache.

        Args:
            positions: int (T,) or (B, T).
            last: int (B, 1). If given, logits only after the token of that index, (B, 1, V).
        """
        x = assembly.embed(self.embedding, self.position, token_ids, positions)
        x, cache = self.depth(x, cache=cache, query_positions=positions, **attention)
        return self._logits(assembly.last_states(x, last)), cache

    def packed(self, token_ids, segment_ids, **state):
        """Return logits (B, T, V) of packed rows, whose sequences do not see each other."""
        if self.memory is not None:
            raise ValueError(
                "`segment_ids` need a model without a memory, which continues one text a row. "
                f"Received: memory={self.memory!r}."
            )
        assembly.check_packable(self.depth)
        positions = segment_positions(segment_ids)
        x = self.drop(assembly.embed(self.embedding, self.position, token_ids, positions))
        return self._logits(self.depth(x, segment_ids=segment_ids))

    def span_summary(self, token_ids=None):
        """Return the attention spans of each layer, for blocks with the pattern `AdaptiveSpan`.

        Args:
            token_ids: int (B, T). A text, on which dynamic spans depend; static spans need none.

        Returns:
            A list of the dicts of `AdaptiveSpan.span_summary`, one a layer.

        Raises:
            ValueError: if a layer has another pattern, or spans are dynamic and there is no text.
        """
        blocks = self.depth.blocks
        patterns = [block.attention.pattern for block in blocks]
        for pattern in patterns:
            if not isinstance(pattern, AdaptiveSpan):
                raise ValueError(
                    "`span_summary` needs blocks with the pattern `AdaptiveSpan`. "
                    f"Received: pattern={pattern!r}."
                )
        if not any(pattern.dynamic for pattern in patterns):
            return [pattern.span_summary() for pattern in patterns]
        if token_ids is None:
            raise ValueError(
                "Dynamic spans depend on the text: `span_summary` needs `token_ids`. "
                "Received: token_ids=None."
            )
        if isinstance(token_ids, (list, tuple)):
            token_ids = np.array(token_ids)
        shape = getattr(token_ids, "shape", ())
        is_batch = len(shape) == 2 and shape[1] != 0
        check_that(is_batch, "token ids (B, T), of at least one token", token_ids=token_ids)
        x = assembly.embed(self.embedding, self.position, token_ids)
        _, outputs = self.depth(x, return_hidden_states=True)
        # Each block measures the spans of its input; the last output is the input of none.
        inputs = [block.residual.before(x) for block, x in zip(blocks, [x, *outputs])]
        return [pattern.span_summary(x) for pattern, x in zip(patterns, inputs, strict=True)]

    def _logits(self, x):
        return self.embedding.logits(x) if self.head is None else self.head(x)
