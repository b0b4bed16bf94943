"""Transformer-XL (Dai et al., 2019)."""

from keras_attn import depth, layers, memory, scores
from keras_attn.models.causal_language_model import CausalLanguageModel
from keras_attn.ops.shapes import head_size
from keras_attn.patterns.per_layer import pattern_of


def transformer_xl(
    vocabulary_size,
    num_layers=12,
    num_heads=8,
    hidden_dim=512,
    intermediate_dim=2048,
    dropout=0.1,
    attention_dropout=0.0,
    memory_length=512,
    clamp_length=None,
    cutoffs=None,
    div_val=1,
    pad_id=0,
    name="transformer_xl",
):
    """Build Transformer-XL, with a memory of earlier segments and relative positions.

        x = LN(x + RelativeAttention(x, [SG(memory); x])),  x = LN(x + FFN(x));  logits = x E^T

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | relative | causal | in the score | post | stack | segment | LM, adaptive softmax |

    `keras_attn.memory.StatefulSegments(model)` keeps the memory between the batches of `fit`. The
    paper evaluates with a longer one: the same weights in a model made with another `memory_length`
    and a `clamp_length` near that of training.

    Cost: for a segment of T tokens after M others, time O(L T D (T + M + F)) and memory O(L (T (N
    (T + M) + F) + M D)).

    Use it for language models of long documents, with a context beyond one segment.

    Args:
        vocabulary_size, num_layers, num_heads, hidden_dim, intermediate_dim: as `gpt`.
        dropout: float. Dropout rate of the embeddings, of the sublayers' outputs and of the
            feed-forward layers' hidden layer.
        attention_dropout: float. Dropout rate of the attention weights.
        memory_length: int. Inputs that each layer remembers.
        clamp_length: int. Keys further away count as being at this distance; None for none.
        cutoffs: ints, the first ids of the clusters of rarer words, for an adaptive softmax; None
            for one softmax over all tokens, which suits characters and subwords.
        div_val: int. Factor by which each cluster's vectors are narrower than those before.
        pad_id: int. The id of padding; None for none.

    Returns:
        A `CausalLanguageModel` with a memory, from token ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.transformer_xl(vocabulary_size=100, num_layers=2,
        ...     num_heads=2, hidden_dim=8, intermediate_dim=16, memory_length=4, cutoffs=[20, 50])
        >>> sorted(model.output)
        ['logits', 'memory', 'memory_length']

    Differs from the paper: each layer has u and v of its own, as in the authors' large models; no
        dropout on the vectors of distances; a query attends to all that is remembered, where the
        authors evaluate with equally many keys for all.

    Reference: [Dai et al., 2019](https://arxiv.org/abs/1901.02860), section 3.
    """
    embedding, head = layers.TokenEmbedding(vocabulary_size, hidden_dim, pad_id=pad_id), None
    if cutoffs is not None:
        embedding = layers.AdaptiveEmbedding(
            vocabulary_size, hidden_dim, cutoffs, div_val, pad_id=pad_id
        )
        head = layers.AdaptiveSoftmax(embedding, tied_projections="all_but_first")
    return CausalLanguageModel(
        embedding=embedding,
        head=head,
        depth=relative_stack(
            num_layers,
            num_heads,
            head_size(hidden_dim, num_heads),
            intermediate_dim,
            dropout,
            attention_dropout,
            clamp_length,
        ),
        memory=memory.SegmentMemory(memory_length),
        dropout=dropout,
        name=name,
    )


def relative_stack(
    num_layers,
    num_heads,
    key_dim,
    intermediate_dim,
    dropout,
    attention_dropout,
    clamp_length,
    width=None,
    pattern="causal",
    residual="post_norm",
):
    """Return Transformer-XL's stack, whose scores know the width if heads do not add up to it."""

    def block(index):
        return layers.TransformerBlock(
            layers.MultiHeadAttention(
                num_heads,
                key_dim,
                score=scores.Relative(width, clamp_length),
                pattern=pattern_of(pattern, index),
                use_bias=False,
                dropout=attention_dropout,
            ),
            layers.FeedForward(intermediate_dim, dropout=dropout),
            residual=residual,
            dropout=dropout,
        )

    return depth.Stack(block, num_layers, name="depth")
