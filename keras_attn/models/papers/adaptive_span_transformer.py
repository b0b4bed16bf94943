"""The Transformer with adaptive spans (Sukhbaatar et al., 2019)."""

from keras_attn import depth, layers, memory, patterns, scores
from keras_attn.models.causal_language_model import CausalLanguageModel
from keras_attn.ops.shapes import head_size


def adaptive_span_transformer(
    vocabulary_size,
    num_layers=12,
    num_heads=8,
    hidden_dim=512,
    intermediate_dim=2048,
    dropout=0.3,
    max_span=8192,
    ramp=32,
    span_loss=5e-7,
    dynamic=False,
    name="adaptive_span_transformer",
):
    """Build the adaptive-span Transformer, whose heads learn how many past keys they attend to.

        x = LN(x + Attention(x, [SG(memory); x])),  x = LN(x + FFN(x));
        weight(i, j) = m_z(i - j) exp(q_i . (k_j + p_{i-j}) / sqrt(H)) / sum of the same

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | dot + learned relative | adaptive span | in the score | post | stack | segment | LM + span |

    `keras_attn.memory.StatefulSegments(model)` keeps the memory between the batches of `fit`;
    `model.span_summary(token_ids)` returns the learned spans of each layer's heads.

    Cost: time O(L T D (z + F)) and memory O(L (T F + M D)) for a segment of T tokens, where z is
    the longest span with its ramp and M is `max_span`.

    Use it for text by characters, in which most heads need a short context and a few a long one.

    Args:
        vocabulary_size, num_layers, num_heads, hidden_dim, intermediate_dim: as `gpt`.
        dropout: float. Dropout rate of the attention weights and of the feed-forward layers' hidden
            layer.
        max_span: int. Longest span of a head, and number of inputs that each layer remembers.
        ramp: int. Length of the ramp on which keys fade out.
        span_loss: float. Loss per token of span, for the mean over a layer's heads.
        dynamic: bool. If True, each query has a span that its input determines.

    Returns:
        A `CausalLanguageModel` with a memory, from token ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.adaptive_span_transformer(vocabulary_size=100, num_layers=2,
        ...     num_heads=2, hidden_dim=8, intermediate_dim=16, max_span=16)
        >>> sorted(model.output)
        ['logits', 'memory', 'memory_length']

    Differs from the paper: a query attends to its own key too; each layer has its own vectors of
        distances, which the paper shares.

    Reference: [Sukhbaatar et al., 2019](https://arxiv.org/abs/1905.07799), sections 2 and 3.
    """

    def block(index):
        score = scores.LearnedRelative(max_span)
        pattern = patterns.AdaptiveSpan(max_span, ramp, span_loss=span_loss, dynamic=dynamic)
        size = head_size(hidden_dim, num_heads)
        return layers.TransformerBlock(
            layers.MultiHeadAttention(
                num_heads, size, score=score, pattern=pattern, use_bias=False, dropout=dropout
            ),
            layers.FeedForward(intermediate_dim, dropout=dropout),
            residual="post_norm",
        )

    return CausalLanguageModel(
        embedding=layers.TokenEmbedding(vocabulary_size, hidden_dim),
        depth=depth.Stack(block, num_layers, name="depth"),
        memory=memory.SegmentMemory(max_span),
        name=name,
    )
