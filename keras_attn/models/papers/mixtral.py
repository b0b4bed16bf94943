"""Mixtral (Jiang et al., 2024)."""

from keras_attn import layers, norms, positions
from keras_attn.models.papers.decoder import decoder


def mixtral(
    vocabulary_size,
    num_layers=32,
    num_heads=32,
    hidden_dim=4096,
    intermediate_dim=14336,
    dropout=0.0,
    num_key_value_heads=None,
    num_experts=8,
    top_k=2,
    balance_loss=0.02,
    max_wavelength=1e6,
    epsilon=1e-5,
    pad_id=0,
    name="mixtral",
):
    """Build Mixtral, a `llama` with several feed-forward networks, of which each token uses two.

        x = x + CausalSelfAttention(RMSNorm(x)),  x = x + sum_e w_e SwiGLU_e(RMSNorm(x))

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | scaled dot | causal | rotary | pre, RMSNorm, experts | stack | KV cache | LM + balance |

    Cost: time O(L T D (T + k F)), and memory O(L T (N T + k F)) with the matrices of scores, for k
    experts a token; weights for all E experts.

    Use it for language models that know many facts, at the cost of a smaller one.

    Args:
        vocabulary_size, num_layers, num_heads, hidden_dim, intermediate_dim: as `llama`.
        dropout, num_key_value_heads, max_wavelength, epsilon: as `llama`.
        num_experts, top_k, balance_loss: as `keras_attn.feed_forward.MixtureOfExperts`.
        pad_id: int. The id of padding; None for none.

    Returns:
        A `CausalLanguageModel`, from token ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.mixtral(100, num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=16, num_experts=3)
        >>> model.depth.blocks[0].feed_forward.num_experts
        3

    Differs from the paper: by default token id 0 is padding, not a token. The paper does not
        mention the loss for uneven use of experts; its weight is that of the published
        configuration, whose loss is one of all layers and not divided by `top_k`.

    Reference: [Jiang et al., 2024](https://arxiv.org/abs/2401.04088), section 2, table 1.
    """

    def experts(normal, index):
        expert = layers.GatedFeedForward(intermediate_dim, kernel_initializer=normal)
        return layers.MixtureOfExperts(expert, num_experts, top_k, balance_loss=balance_loss)

    return decoder(
        vocabulary_size,
        num_layers,
        num_heads,
        hidden_dim,
        experts,
        lambda index: positions.Rotary(max_wavelength, "half"),
        dropout=dropout,
        num_key_value_heads=num_key_value_heads,
        norm=norms.RMSNorm(epsilon),
        pad_id=pad_id,
        name=name,
    )
