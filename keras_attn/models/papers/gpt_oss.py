"""gpt-oss (OpenAI, 2025)."""

from keras import ops

from keras_attn import layers, norms, positions, registry
from keras_attn.models.papers.decoder import decoder, windows_in_turn
from keras_attn.ops.activations import gelu_sigmoid
from keras_attn.ops.checks import check_positive


def gpt_oss(
    vocabulary_size,
    num_layers=24,
    num_heads=64,
    hidden_dim=2880,
    intermediate_dim=2880,
    dropout=0.0,
    num_key_value_heads=None,
    key_dim=64,
    window=128,
    num_experts=32,
    top_k=4,
    balance_loss=0.01,
    max_wavelength=150000,
    scaling=None,
    pad_id=0,
    name="gpt_oss",
):
    """Build gpt-oss, a `mixtral` with sinks, and with a window in every other block.

        x = x + SelfAttention(RMSNorm(x)),  x = x + sum_e w_e FFN_e(RMSNorm(x)),
        weight of key j = exp(z_j) / (exp(s) + sum_i exp(z_i)),
        FFN(x) = (f(min(x W_g, 7)) * (clip(x W_1, -7, 7) + 1)) W_2,   f(x) = x sigmoid(1.702 x)

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | scaled dot, sinks | local, causal | rotary | pre, RMSNorm, experts | stack | KV cache | LM |

    Cost: time O(L T D (T + k F)), and memory O(L T (N T + k F)) with the matrices of scores, for k
    experts a token. Half of the blocks attend to w keys only.

    Use it for language models of long texts, with many weights at the cost of a small model.

    Args:
        vocabulary_size, num_layers, num_heads, hidden_dim, dropout: as `llama`.
        intermediate_dim: int. Width F of each expert.
        num_key_value_heads: int. Heads of keys and values; by default `num_heads`.
        key_dim: int. Size H of a head.
        window: int. Keys w of a query in the first block and every other one.
        num_experts, top_k, balance_loss: as `keras_attn.feed_forward.MixtureOfExperts`.
        max_wavelength: float. Base of the rotary positions.
        scaling: a `keras_attn.positions.RotaryScaling`; the presets have
            `YaRN(32, 4096, truncate=False)`. None for none.
        pad_id: int. The id of padding; None for none.

    Returns:
        A `CausalLanguageModel`, from token ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.gpt_oss(100, num_layers=2, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=16, key_dim=4, window=4, num_experts=5)
        >>> [block.attention.pattern for block in model.depth.blocks]
        [Local(4), Causal()]

    Differs from the paper: by default token id 0 is padding, not a token; the paper does not
        mention the loss for uneven use of experts; no weight is quantized.

    Reference: [OpenAI, 2025](https://arxiv.org/abs/2508.10925), section 2, table 1.
    """

    def experts(normal, index):
        expert = ClippedGatedFeedForward(
            intermediate_dim, gelu_sigmoid, use_bias=True, kernel_initializer=normal
        )
        return layers.MixtureOfExperts(
            expert, num_experts, top_k, balance_loss=balance_loss, use_router_bias=True
        )

    return decoder(
        vocabulary_size,
        num_layers,
        num_heads,
        hidden_dim,
        experts,
        lambda index: positions.Rotary(max_wavelength, "half", scaling=scaling),
        dropout=dropout,
        num_key_value_heads=num_key_value_heads,
        key_dim=key_dim,
        pattern=windows_in_turn(window),
        sinks=True,
        use_bias=True,
        norm=norms.RMSNorm(1e-5),
        pad_id=pad_id,
        name=name,
    )


@registry.register
class ClippedGatedFeedForward(layers.GatedFeedForward):
    """Gated layer with bounds: (activation(min(x W_g, c)) * (clip(x W_1, -c, c) + 1)) W_2.

    Args:
        intermediate_dim, activation, use_bias: as `GatedFeedForward`.
        limit: float. The bound c.
        alpha: float. If given, the activation is x sigmoid(alpha x), in place of `activation`.
    """

    def __init__(
        self, intermediate_dim, activation="silu", use_bias=False, limit=7.0, alpha=None, **kwargs
    ):
        super().__init__(intermediate_dim, activation, use_bias, **kwargs)
        check_positive(limit=limit)
        self.limit = float(limit)
        self.alpha = None if alpha is None else float(alpha)

    def join(self, gate, intermediate):
        gate = ops.minimum(gate, self.limit)
        intermediate = ops.clip(intermediate, -self.limit, self.limit) + 1.0
        if self.alpha is None:
            return super().join(gate, intermediate)
        return gate * ops.sigmoid(self.alpha * gate) * intermediate
