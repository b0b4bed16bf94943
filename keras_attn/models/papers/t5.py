"""T5 (Raffel et al., 2020)."""

import keras

from keras_attn import depth, layers, norms, residuals, scores
from keras_attn.models.encoder_decoder import EncoderDecoder
from keras_attn.models.papers.decoder import untied_head
from keras_attn.ops.activations import gelu_tanh
from keras_attn.ops.shapes import head_size


def t5(
    vocabulary_size,
    num_layers=12,
    num_heads=12,
    hidden_dim=768,
    intermediate_dim=3072,
    dropout=0.1,
    key_dim=None,
    num_buckets=32,
    max_distance=128,
    gated=False,
    tied=True,
    pad_id=0,
    start_id=None,
    pattern="dense",
    num_decoder_layers=None,
    activation=None,
    epsilon=1e-6,
    name="t5",
):
    """Build T5, an encoder and a decoder whose attention has a bias for each distance.

        encoder block: x = x + SelfAttention(RMSNorm(x)),  x = x + FFN(RMSNorm(x))
        decoder block: the same, causal, with x = x + Attention(RMSNorm(x), encoded source) between

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | dot + T5 bias | dense / causal / cross | in the score | pre, RMSNorm | stack | KV cache | LM |

    Cost: time O(L T D (T + F)), and memory O(L T (N T + F)) with the matrices of scores, for T
    tokens on either side.

    Use it for every task from text to text: translation, summaries, answers.

    Args:
        vocabulary_size, num_layers, num_heads, hidden_dim, intermediate_dim: as `transformer`.
        dropout: float. Dropout rate of the embeddings, of the attention weights, of the sublayers'
            outputs and of the feed-forward layers' hidden layer.
        key_dim: int. Size H of a head; by default `hidden_dim` divided by `num_heads`.
        num_buckets, max_distance: as `keras_attn.scores.T5Bias`.
        gated: bool. If True, feed-forward layers have gates, as in T5 1.1.
        tied: bool. If True, the logits share the token table; else they have their own weights, as
            in T5 1.1.
        pad_id: int. The id of padding; None for none.
        start_id: int. The token that begins each target, if it is the `pad_id`, as in the published
            checkpoints; None if it is another.
        pattern: name or object of the pattern axis, of the encoder's self-attention.
        num_decoder_layers: int. Number of blocks of the decoder; by default `num_layers`, which is
            that of the encoder.
        activation: name or function, of the feed-forward layers or of their gates; by default ReLU,
            and for gates the approximation of GELU by tanh.
        epsilon: float. Added to the mean square in the norms.

    Returns:
        An `EncoderDecoder`, from source ids (B, S) and target ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.t5(100, num_layers=1, num_heads=2, hidden_dim=8)
        >>> sorted(model.input)
        ['source_ids', 'target_ids']

    Differs from the paper: each layer has a table of biases of its own, which the paper shares
        between the layers of a side. The token table is that of the paper divided by the root of
        D, which gives the paper's embeddings and logits. Nothing is dropped after the last norm.

    Reference: [Raffel et al., 2020](https://arxiv.org/abs/1910.10683), section 2.1; T5 1.1: the
        authors' [released checkpoints](https://github.com/google-research/text-to-text-transfer-transformer/blob/main/released_checkpoints.md#t511).
    """

    def feed_forward(index):
        kind, usual = (
            (layers.GatedFeedForward, gelu_tanh) if gated else (layers.FeedForward, "relu")
        )
        return kind(
            intermediate_dim,
            usual if activation is None else activation,
            use_bias=False,
            dropout=dropout,
            kernel_initializer=scaled_normal(),
        )

    head = None if tied else untied_head(vocabulary_size, scaled_normal())
    sizes = vocabulary_size, num_layers, num_heads, hidden_dim, key_dim, dropout
    return text_to_text(
        *sizes,
        num_buckets,
        max_distance,
        feed_forward,
        head=head,
        pad_id=pad_id,
        start_id=start_id,
        pattern=pattern,
        num_decoder_layers=num_decoder_layers,
        epsilon=epsilon,
        name=name,
    )


def scaled_normal(scale=1.0):
    """Return an initializer of normal numbers of variance `scale` / number of inputs."""
    return keras.initializers.VarianceScaling(scale, "fan_in", "untruncated_normal")


def text_to_text(
    vocabulary_size,
    num_layers,
    num_heads,
    hidden_dim,
    key_dim,
    dropout,
    num_buckets,
    max_distance,
    feed_forward,
    scale=1.0,
    head=None,
    pad_id=0,
    start_id=None,
    pattern="dense",
    num_decoder_layers=None,
    epsilon=1e-6,
    decoder_feed_forward=None,
    name=None,
):
    """Build T5's encoder and decoder, whose block `index` has the layer `feed_forward(index)`.

    That of the decoder has `decoder_feed_forward(index)`, if there is such a function.
    """
    key_dim = head_size(hidden_dim, num_heads) if key_dim is None else key_dim

    def attention(pattern, *bias):
        return layers.MultiHeadAttention(
            num_heads,
            key_dim,
            score=sum(bias, scores.DotProduct(scaled=False)),
            pattern=pattern,
            use_bias=False,
            dropout=dropout,
            # The root of H that the score leaves out.
            query_initializer=scaled_normal(scale / key_dim),
            kernel_initializer=scaled_normal(scale),
        )

    def stack(pattern, num_layers, feed_forward, has_context):
        bias = {"bidirectional": not has_context}

        def block(index):
            return layers.TransformerBlock(
                attention(pattern, scores.T5Bias(num_buckets, max_distance, **bias)),
                feed_forward(index),
                cross_attention=attention("dense") if has_context else None,
                residual=residuals.PreNorm(norm=norms.RMSNorm(epsilon)),
                dropout=dropout,
            )

        return depth.Stack(block, num_layers, name="decoder" if has_context else "encoder")

    return EncoderDecoder(
        embedding=layers.TokenEmbedding(vocabulary_size, hidden_dim, pad_id=pad_id),
        position=None,
        encoder=stack(pattern, num_layers, feed_forward, has_context=False),
        decoder=stack(
            "causal",
            num_layers if num_decoder_layers is None else num_decoder_layers,
            decoder_feed_forward or feed_forward,
            has_context=True,
        ),
        dropout=dropout,
        head=head,
        start_id=start_id,
        name=name,
    )
