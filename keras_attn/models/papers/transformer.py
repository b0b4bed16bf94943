"""The Transformer (Vaswani et al., 2017)."""

from keras_attn import depth, layers, patterns, registry, scores
from keras_attn.models import assembly
from keras_attn.models.encoder_decoder import EncoderDecoder
from keras_attn.ops.shapes import head_size
from keras_attn.patterns.causal import make_causal
from keras_attn.patterns.dense import Dense


def transformer(
    vocabulary_size,
    num_layers=6,
    num_heads=8,
    hidden_dim=512,
    intermediate_dim=2048,
    dropout=0.1,
    attention_dropout=0.0,
    position="sinusoidal",
    residual="post_norm",
    pad_id=0,
    score="scaled_dot",
    pattern="dense",
    name="transformer",
):
    """Build the Transformer, an encoder and a decoder of attention instead of recurrence.

        encoder block: x = LN(x + SelfAttention(x)),  x = LN(x + FFN(x))
        decoder block: the same, causal, with x = LN(x + Attention(x, encoded source)) between

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | scaled dot | dense / causal / cross | sinusoidal | post | stack | KV cache | label-smoothed |

    Cost: time O(L T D (T + F)), and memory O(L T (N T + F)) with the matrices of scores, for T
    tokens on either side.

    Use it for translation, and other tasks from one sequence to another.

    Args:
        vocabulary_size: int. Number of tokens V, the id of padding included.
        num_layers: int. Number of blocks L of the encoder, and of the decoder.
        num_heads: int. Number of heads N of each attention; it divides `hidden_dim`.
        hidden_dim: int. Width D.
        intermediate_dim: int. Width F of the feed-forward layers.
        dropout: float. Dropout rate of the embeddings and of the sublayers' outputs.
        attention_dropout: float. Dropout rate of the attention weights.
        position, residual: names or objects of these axes.
        pad_id: int. The id of padding; None for none.
        score: name or object of the score axis, of which each attention has a copy. One with
            distances, such as "relative", is that of the self-attentions: positions of two
            sequences have no distance, and the cross-attention keeps "scaled_dot".
        pattern: name or object of the pattern axis, for the self-attentions; in the decoder without
            the keys after the query.

    Returns:
        An `EncoderDecoder`, from source ids (B, S) and target ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.transformer(100, num_layers=1, num_heads=2, hidden_dim=8)
        >>> sorted(model.input)
        ['source_ids', 'target_ids']

    Differs from the paper: the projections of the attention have biases, as Keras's have.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.
    """

    score, pattern = scores.get(score), patterns.get(pattern)

    def attention(pattern, score=score):
        return layers.MultiHeadAttention(
            num_heads,
            head_size(hidden_dim, num_heads),
            score=registry.copy(score),
            pattern=registry.copy(pattern),
            dropout=attention_dropout,
        )

    def block(pattern, cross=False):
        return layers.TransformerBlock(
            attention=attention(pattern),
            cross_attention=attention(Dense(), assembly.context_score(score)) if cross else None,
            feed_forward=layers.FeedForward(intermediate_dim),
            residual=residual,
            dropout=dropout,
        )

    return EncoderDecoder(
        embedding=layers.TokenEmbedding(vocabulary_size, hidden_dim, pad_id=pad_id),
        position=position,
        encoder=depth.Stack(lambda index: block(pattern), num_layers, name="encoder"),
        decoder=depth.Stack(
            lambda index: block(make_causal(pattern), cross=True), num_layers, name="decoder"
        ),
        dropout=dropout,
        name=name,
    )
