"""The Universal Transformer (Dehghani et al., 2019)."""

from keras_attn import layers, patterns, registry, scores
from keras_attn.depth import ACT, Recurrent
from keras_attn.models import assembly
from keras_attn.models.encoder_decoder import EncoderDecoder
from keras_attn.ops.checks import check_choice
from keras_attn.ops.shapes import head_size
from keras_attn.patterns.causal import make_causal
from keras_attn.patterns.dense import Dense


def universal_transformer(
    vocabulary_size,
    num_layers=6,
    num_heads=16,
    hidden_dim=1024,
    intermediate_dim=4096,
    dropout=0.3,
    attention_dropout=0.0,
    depth="recurrent",
    transition="feed_forward",
    position="timestep",
    residual="post_norm",
    ponder_loss=0.01,
    halting_bias=1.0,
    score="scaled_dot",
    pattern="dense",
    name="universal_transformer",
):
    """Build the Universal Transformer: one encoder block and one decoder block, each repeated.

        X = H^{t-1} + P^t,  A = LN(X + SelfAttention(X)),  H^t = LN(A + Transition(A)),  t = 1 .. T

    The decoder attends to the encoder's H^T between the two.

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | scaled dot | causal, cross | timestep per step | post | recurrent, ACT | KV cache | ponder |

    Cost: that of a `transformer` of T layers, with the weights of one.

    Use it for algorithmic tasks, and tasks from sequence to sequence with few weights.

    Args:
        vocabulary_size, num_heads, hidden_dim, intermediate_dim: as `transformer`.
        num_layers: int. Number of steps T, on which the number of weights does not depend.
        depth: "recurrent", or "act" for a number of steps of each position's own, at most T.
        transition: "feed_forward" or "separable_conv".
        ponder_loss, halting_bias: as `keras_attn.depth.ACT`.
        dropout: float. Dropout rate of the embeddings and of the sublayers' outputs.
        attention_dropout: float. Dropout rate of the attention weights.
        position, residual: names or objects of these axes.
        score, pattern: as `transformer`.

    Returns:
        An `EncoderDecoder`, from source ids (B, S) and target ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.universal_transformer(vocabulary_size=100, num_layers=3,
        ...     num_heads=2, hidden_dim=8, intermediate_dim=16, depth="act")
        >>> model.decoder.max_steps
        3

    Differs from the paper: the projections of the attention have biases, as Keras's have.

    Reference: [Dehghani et al., 2019](https://arxiv.org/abs/1807.03819), sections 2.1 and 2.2.
    """
    check_choice(("recurrent", "act"), depth=depth)
    check_choice(("feed_forward", "separable_conv"), transition=transition)

    score, pattern = scores.get(score), patterns.get(pattern)

    def attention(pattern, score=score):
        return layers.MultiHeadAttention(
            num_heads,
            head_size(hidden_dim, num_heads),
            score=registry.copy(score),
            pattern=registry.copy(pattern),
            dropout=attention_dropout,
        )

    def feed_forward(pattern):
        if transition == "feed_forward":
            return layers.FeedForward(intermediate_dim)
        return layers.SeparableConvTransition(intermediate_dim, causal=pattern.causal)

    def block(pattern, cross_attention=None):
        return layers.TransformerBlock(
            attention(pattern),
            feed_forward(pattern),
            cross_attention=cross_attention,
            residual=residual,
            dropout=dropout,
        )

    def repeated(block, name):
        if depth == "recurrent":
            return Recurrent(block, num_layers, position, name=name)
        halting = {"ponder_loss": ponder_loss, "halting_bias": halting_bias}
        return ACT(block, num_layers, position=position, name=name, **halting)

    cross_attention = attention(Dense(), assembly.context_score(score))
    return EncoderDecoder(
        embedding=layers.TokenEmbedding(vocabulary_size, hidden_dim),
        position=None,
        encoder=repeated(block(pattern), "encoder"),
        decoder=repeated(block(make_causal(pattern), cross_attention), "decoder"),
        dropout=dropout,
        name=name,
    )
