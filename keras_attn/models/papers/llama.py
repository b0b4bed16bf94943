"""Llama (Touvron et al., 2023)."""

from keras_attn import layers, norms, positions
from keras_attn.models import assembly
from keras_attn.models.papers.decoder import decoder


def llama(
    vocabulary_size,
    num_layers=32,
    num_heads=32,
    hidden_dim=4096,
    intermediate_dim=11008,
    dropout=0.0,
    num_key_value_heads=None,
    pattern="causal",
    max_wavelength=10000,
    scaling=None,
    epsilon=1e-6,
    tied=False,
    pad_id=0,
    name="llama",
    score="scaled_dot",
    position="rotary",
    residual="pre_norm",
):
    """Build Llama 1, 2 or 3, a causal stack with rotary positions and gates.

        x = x + CausalSelfAttention(RMSNorm(x)),  x = x + SwiGLU(RMSNorm(x));  logits = RMSNorm(x) W

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | scaled dot | causal | rotary | pre, RMSNorm | stack | KV cache | LM |

    Cost: time O(L T D (T + F)), and memory O(L T (N T + F)) with the matrices of scores. A cache
    has `num_key_value_heads` heads of keys and values.

    Use it for language models, and for the checkpoints of many families that follow Llama.

    Args:
        vocabulary_size, num_layers, num_heads, hidden_dim: as `gpt`.
        intermediate_dim: int. Width F of the gated feed-forward layers, about 8/3 D.
        dropout: float. Dropout rate of the sublayers' outputs.
        num_key_value_heads: int. Heads of keys and values; by default `num_heads`.
        pattern: name or object of a causal pattern, or a function of the layer's index.
        max_wavelength: float. Base of the rotary positions; Llama 3 has 500,000.
        scaling: a `keras_attn.positions.RotaryScaling`; None for none.
        epsilon: float. Of the norms; Llama 2 and 3 have 1e-5.
        tied: bool. If True, the logits share the token table, as in the smaller ones of Llama 3.2.
        pad_id: int. The id of padding; None for none.
        score, residual: as `gpt`.
        position: "rotary", by `max_wavelength` and `scaling`, or as `gpt`.

    Returns:
        A `CausalLanguageModel`, from token ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.llama(100, num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=16, num_key_value_heads=1)
        >>> model.output.shape
        (None, None, 100)

    Differs from the paper: by default token id 0 is padding, not a token.

    Reference: [Touvron et al., 2023](https://arxiv.org/abs/2302.13971), section 2.2; shared
        key-value heads: [Llama 2, 2023](https://arxiv.org/abs/2307.09288), section 2.2;
        [Llama 3, 2024](https://arxiv.org/abs/2407.21783), section 3.2.
    """
    position, position_of_heads = assembly.split_position(
        position, rotary=lambda: positions.Rotary(max_wavelength, "half", scaling=scaling)
    )
    return decoder(
        vocabulary_size,
        num_layers,
        num_heads,
        hidden_dim,
        lambda normal, index: layers.GatedFeedForward(intermediate_dim, kernel_initializer=normal),
        lambda index: position_of_heads(),
        added_position=position,
        dropout=dropout,
        num_key_value_heads=num_key_value_heads,
        score=score,
        pattern=pattern,
        residual=residual,
        norm=norms.RMSNorm(epsilon),
        tied=tied,
        pad_id=pad_id,
        name=name,
    )
