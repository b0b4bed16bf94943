"""BERT (Devlin et al., 2018)."""

import keras

from keras_attn import layers, norms, positions, registry, scores
from keras_attn.depth import Stack
from keras_attn.models import assembly
from keras_attn.models.encoder_models import MaskedLanguageModel
from keras_attn.ops.shapes import head_size
from keras_attn.patterns.per_layer import pattern_of


def bert(
    vocabulary_size,
    num_layers=12,
    num_heads=12,
    hidden_dim=768,
    intermediate_dim=3072,
    dropout=0.1,
    max_length=512,
    num_segments=2,
    pattern="dense",
    activation="gelu",
    epsilon=1e-12,
    pad_id=0,
    attention=layers.MultiHeadAttention,
    scaled=False,
    name="bert",
    score="scaled_dot",
    position="learned",
    residual="post_norm",
    depth=Stack,
    embedding_dim=None,
    head_activation=None,
):
    """Build BERT, a bidirectional encoder that predicts masked tokens.

        x = LN(x + SelfAttention(x)),  x = LN(x + FFN(x));  logits = LN(gelu(x W)) E^T + c

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | scaled dot | dense | learned + segment | post | stack | - | masked LM |

    Cost: time O(L T D (T + F)), and memory O(L T (N T + F)) with the matrices of scores.

    Use it for classifying and tagging texts, by features that see both sides.

    Args:
        vocabulary_size, num_layers, num_heads, hidden_dim, intermediate_dim: as `gpt`.
        dropout: float. Dropout rate of the embeddings, of the attention weights and of the
            sublayers' outputs.
        max_length: int. Number of learned positions.
        num_segments: int. Number of segments that a text may have; 0 for a model without them.
        pattern: name or object of the pattern axis, or a function of the layer's index.
        activation: name or function, of the feed-forward layers and of the head.
        epsilon: float. Of the norms.
        pad_id: int. The id of padding; None for none.
        attention: class of the attention layers, or a function with the arguments of
            `MultiHeadAttention`.
        scaled: bool. If True, the tokens' embeddings are multiplied by the root of `hidden_dim`.
        score, position, residual: as `gpt`.
        depth: class of the depth, such as `keras_attn.depth.Recurrent` for one block that is
            repeated, or a function with the arguments of `Stack`.
        embedding_dim: int. Width of the embeddings; None for `hidden_dim`. With a width, as in
            ALBERT and ELECTRA, an `EmbeddingProjection` takes the place of the norm.
        head_activation: name or function, of the head; None for `activation`.

    Returns:
        A `MaskedLanguageModel`, from token ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.bert(100, num_layers=1, num_heads=2, hidden_dim=8)
        >>> model.output.shape
        (None, None, 100)

    Differs from the paper: no pooler and no next-sentence head, which RoBERTa found no use for
        (Liu et al., 2019).

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3 and appendix A.
    """
    score, norm = scores.get(score), norms.LayerNorm(epsilon)
    normal = keras.initializers.TruncatedNormal(stddev=0.02)
    position, position_of_heads = assembly.split_position(
        position, learned=lambda: positions.Learned(max_length, embeddings_initializer=normal)
    )

    def block(index):
        return layers.TransformerBlock(
            attention(
                num_heads,
                head_size(hidden_dim, num_heads),
                score=registry.copy(score),
                pattern=pattern_of(pattern, index),
                position=position_of_heads(),
                dropout=dropout,
                kernel_initializer=normal,
            ),
            layers.FeedForward(intermediate_dim, activation, kernel_initializer=normal),
            residual=assembly.residual_of(residual, norm),
            dropout=dropout,
        )

    embedding = layers.TokenEmbedding(
        vocabulary_size,
        embedding_dim or hidden_dim,
        pad_id=pad_id,
        scaled=scaled,
        embeddings_initializer=normal,
    )
    embedding_norm = norms.LayerNorm(epsilon)
    if embedding_dim is not None:
        embedding_norm = layers.EmbeddingProjection(
            hidden_dim, embedding_norm, kernel_initializer=normal
        )
    segment = None
    if num_segments:
        segment = layers.SegmentEmbedding(num_segments, embeddings_initializer=normal)
    return MaskedLanguageModel(
        embedding=embedding,
        position=position,
        segment=segment,
        norm=embedding_norm,
        encoder=depth(block, num_layers, name="encoder"),
        head=layers.MaskedTokenHead(
            embedding,
            activation if head_activation is None else head_activation,
            norm=norms.LayerNorm(epsilon),
            kernel_initializer=normal,
        ),
        dropout=dropout,
        name=name,
    )
