"""Mistral 7B (Jiang et al., 2023)."""

from keras_attn import patterns
from keras_attn.models.papers.llama import llama


def mistral(
    vocabulary_size,
    num_layers=32,
    num_heads=32,
    hidden_dim=4096,
    intermediate_dim=14336,
    dropout=0.0,
    num_key_value_heads=None,
    window=4096,
    max_wavelength=10000,
    scaling=None,
    epsilon=1e-5,
    pad_id=0,
    name="mistral",
):
    """Build Mistral, a `llama` whose queries attend to a window of keys.

        x = x + LocalSelfAttention(RMSNorm(x)),  x = x + SwiGLU(RMSNorm(x));  logits = RMSNorm(x) W

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | scaled dot | local | rotary | pre, RMSNorm | stack | KV cache of w keys | LM |

    L blocks with windows of w read L (w - 1) tokens back.

    Cost: time O(L T D (w + F)) and memory O(L T (D + F)), for windows of w. In a stream
    (`keras_attn.export.TokenStream`) the cache keeps w keys; `generate` keeps all.

    Use it for long texts, and for streams with a cache of fixed size.

    Args:
        vocabulary_size, num_layers, num_heads, hidden_dim, intermediate_dim: as `llama`.
        dropout, max_wavelength, scaling, epsilon: as `llama`.
        num_key_value_heads: as `llama`; the paper has 8.
        window: int. Keys w of a query, its own included.
        pad_id: int. The id of padding; None for none.

    Returns:
        A `CausalLanguageModel`, from token ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.mistral(100, num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=16, window=4)
        >>> model.depth.blocks[0].attention.pattern
        Local(4)

    Differs from the paper: by default token id 0 is padding, not a token.

    Reference: [Jiang et al., 2023](https://arxiv.org/abs/2310.06825), section 2, table 1.
    """
    return llama(
        vocabulary_size,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        dropout,
        num_key_value_heads=num_key_value_heads,
        pattern=patterns.Local(window),
        max_wavelength=max_wavelength,
        scaling=scaling,
        epsilon=epsilon,
        pad_id=pad_id,
        name=name,
    )
