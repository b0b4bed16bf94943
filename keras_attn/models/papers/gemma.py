"""Gemma 2 (Gemma Team, 2024)."""

from keras_attn import layers, norms, positions, scores
from keras_attn.models.papers.decoder import decoder, windows_in_turn
from keras_attn.ops.activations import gelu_tanh


def gemma(
    vocabulary_size,
    num_layers=26,
    num_heads=8,
    hidden_dim=2304,
    intermediate_dim=9216,
    dropout=0.0,
    num_key_value_heads=None,
    key_dim=None,
    window=4096,
    attention_cap=50.0,
    logits_cap=30.0,
    epsilon=1e-6,
    pad_id=0,
    name="gemma",
):
    """Build Gemma 2, a causal stack whose blocks attend to a window and to all keys in turn.

        x = x + RMSNorm(SelfAttention(RMSNorm(x))),  x = x + RMSNorm(GEGLU(RMSNorm(x)))
        logits = 30 tanh(RMSNorm(x) E^T / 30)

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | scaled dot, capped | local, causal | rotary | sandwich, RMSNorm | stack | KV cache | LM |

    Cost: time O(L T D (T + F)), and memory O(L T (N T + F)) with the matrices of scores; half of
    the blocks attend to w keys only.

    Use it for language models whose logits must stay bounded.

    Args:
        vocabulary_size, num_layers, num_heads, hidden_dim, dropout: as `llama`.
        intermediate_dim: int. Width F of the gated feed-forward layers.
        num_key_value_heads: int. Heads of keys and values; by default `num_heads`.
        key_dim: int. Size H of a head; by default `hidden_dim` divided by `num_heads`; the presets
            have 256.
        window: int. Keys w of a query in the first block and every other one.
        attention_cap: float. Bound of the attention's logits.
        logits_cap: float. Bound of the model's logits.
        epsilon: float. Of the norms.
        pad_id: int. The id of padding; None for none.

    Returns:
        A `CausalLanguageModel`, from token ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.gemma(100, num_layers=2, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=16, window=4)
        >>> [block.attention.pattern for block in model.depth.blocks]
        [Local(4), Causal()]

    Differs from the paper: none.

    Reference: [Gemma Team, 2024](https://arxiv.org/abs/2408.00118), section 2, table 1.
    """

    def feed_forward(normal, index):
        return layers.GatedFeedForward(intermediate_dim, gelu_tanh, kernel_initializer=normal)

    return decoder(
        vocabulary_size,
        num_layers,
        num_heads,
        hidden_dim,
        feed_forward,
        lambda index: positions.Rotary(layout="half"),
        dropout=dropout,
        num_key_value_heads=num_key_value_heads,
        key_dim=key_dim,
        score=scores.SoftCap(scores.DotProduct(), attention_cap),
        pattern=windows_in_turn(window),
        residual="sandwich_norm",
        norm=norms.RMSNorm(epsilon, offset=1.0),
        scaled=True,
        logits_cap=logits_cap,
        tied=True,
        pad_id=pad_id,
        name=name,
    )
