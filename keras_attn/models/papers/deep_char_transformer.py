"""The deep character Transformer (Al-Rfou et al., 2018)."""

from keras_attn import depth, layers, positions
from keras_attn.models.causal_language_model import CausalLanguageModel
from keras_attn.ops.shapes import head_size


def deep_char_transformer(
    vocabulary_size,
    num_layers=12,
    num_heads=8,
    hidden_dim=512,
    intermediate_dim=2048,
    dropout=0.2,
    max_length=512,
    name="deep_char_transformer",
):
    """Build the deep character Transformer, a causal stack trained with auxiliary losses.

        x_l = LN(y + FFN(y)),  y = LN(z + CausalSelfAttention(z)),  z = x_{l-1} + P_l

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | scaled dot | causal | learned, every layer | post | stack | - | three auxiliary losses |

    Train it as `keras_attn.losses.AuxiliaryLosses(model, total_steps)`: without them, more than ten
    layers hardly learn. Generate with this model, and export it.

    Cost: time O(L T D (T + F)), and memory O(L T (N T + F)) with the matrices of scores.

    Use it for language models of characters, of up to 64 layers.

    Args:
        vocabulary_size, num_layers, num_heads, hidden_dim, intermediate_dim: as `gpt`.
        dropout: float. Dropout rate of the attention weights and of the feed-forward layers' hidden
            layer.
        max_length: int. Number of positions.

    Returns:
        A `CausalLanguageModel`, from token ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.deep_char_transformer(vocabulary_size=100, num_layers=2,
        ...     num_heads=2, hidden_dim=8, intermediate_dim=16, max_length=32)
        >>> trained = keras_attn.losses.AuxiliaryLosses(model, total_steps=1000)

    Differs from the paper: the logits share the token table; the projections of the attention have
        biases, as Keras's have.

    Reference: [Al-Rfou et al., 2018](https://arxiv.org/abs/1808.04444), sections 2 and 3.
    """

    def block(index):
        size = head_size(hidden_dim, num_heads)
        layer = layers.TransformerBlock(
            layers.MultiHeadAttention(num_heads, size, pattern="causal", dropout=dropout),
            layers.FeedForward(intermediate_dim, dropout=dropout),
            residual="post_norm",
        )
        return layers.PositionedBlock(layer, position=positions.Learned(max_length))

    return CausalLanguageModel(
        embedding=layers.TokenEmbedding(vocabulary_size, hidden_dim),
        depth=depth.Stack(block, num_layers, name="depth"),
        name=name,
    )
