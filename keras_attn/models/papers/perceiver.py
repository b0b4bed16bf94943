"""Perceiver IO for text (Jaegle et al., 2022)."""

import keras

from keras_attn import depth, layers, norms, positions, residuals
from keras_attn.models.encoder_models import MaskedLanguageModel
from keras_attn.ops.shapes import head_size


def perceiver(
    vocabulary_size,
    num_layers=26,
    num_heads=8,
    hidden_dim=768,
    intermediate_dim=1280,
    dropout=0.1,
    num_latents=256,
    latent_dim=None,
    key_dim=None,
    max_length=2048,
    name="perceiver",
):
    """Build Perceiver IO, a masked language model whose blocks run on a few latent vectors.

        z = Read(Z, E[x] + P);  z = z + SelfAttention(LN(z)),  z = z + FFN(LN(z)), L times
        logits_t = Write(Q_t, z) E^T

    where Read and Write are blocks of cross-attention and a feed-forward layer.

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | scaled dot | dense, of latents | learned | pre | latents, stack | - | masked LM |

    Cost: time O(L N C (N + F) + T N (D + C)) and memory O(L N (N + F) + T N), for N latents of
    width C. The cost of the blocks does not depend on the length T.

    Use it for long texts by bytes, in which a `bert` would take too long.

    Args:
        vocabulary_size, num_layers, num_heads, hidden_dim: as `bert`.
        intermediate_dim: int. Width F of the latents' feed-forward layers.
        dropout: float. Dropout rate of the attention weights.
        num_latents: int. Number of latents N.
        latent_dim: int. Width C of the latents; by default `hidden_dim`.
        key_dim: int. Size of a head's queries and keys; by default C divided by `num_heads`.
        max_length: int. Number of positions.

    Returns:
        A `MaskedLanguageModel`, from token ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.perceiver(100, num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=16, num_latents=3, max_length=32)
        >>> model.encoder.num_latents
        3

    Differs from the paper: the logits have no bias.

    Reference: [Jaegle et al., 2022](https://arxiv.org/abs/2107.14795), sections 3 and 4.1; the
        Perceiver: [Jaegle et al., 2021](https://arxiv.org/abs/2103.03206), section 3.
    """
    latent_dim = hidden_dim if latent_dim is None else latent_dim
    key_dim = head_size(latent_dim, num_heads) if key_dim is None else key_dim
    normal = keras.initializers.TruncatedNormal(stddev=0.02)
    residual = residuals.PreNorm(norm=norms.LayerNorm(1e-12))

    def parts(width, intermediate_dim):
        """Return the attention to a width, and its feed-forward layer."""
        attention = layers.MultiHeadAttention(
            num_heads, key_dim, head_size(width, num_heads), dropout=dropout
        )
        return attention, layers.FeedForward(intermediate_dim, activation="gelu")

    def block(index):
        return layers.TransformerBlock(*parts(latent_dim, intermediate_dim), residual=residual)

    read = parts(latent_dim, intermediate_dim)
    write = parts(hidden_dim, hidden_dim)
    # The stack ends with a norm, so `write` reads normalised latents.
    options = {"residual": residual, "adds_query": False, "normalizes_context": False}
    return MaskedLanguageModel(
        embedding=layers.TokenEmbedding(
            vocabulary_size, hidden_dim, scaled=False, embeddings_initializer=normal
        ),
        position=positions.Learned(max_length, embeddings_initializer=normal),
        segment=None,
        norm=None,
        encoder=depth.Latents(
            depth.Stack(block, num_layers),
            read=layers.CrossAttentionBlock(*read, residual=residual),
            write=layers.CrossAttentionBlock(*write, **options),
            num_latents=num_latents,
            latent_dim=latent_dim,
            position=positions.Learned(max_length, embeddings_initializer=normal),
            name="encoder",
        ),
        head=None,
        name=name,
    )
