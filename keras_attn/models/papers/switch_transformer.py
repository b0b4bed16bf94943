"""The Switch Transformer (Fedus et al., 2021)."""

from keras_attn import layers
from keras_attn.models.papers.t5 import scaled_normal, text_to_text
from keras_attn.ops.checks import check_sizes


def switch_transformer(
    vocabulary_size,
    num_layers=12,
    num_heads=12,
    hidden_dim=768,
    intermediate_dim=2048,
    dropout=0.1,
    key_dim=None,
    num_experts=128,
    expert_every=2,
    gated=True,
    balance_loss=0.01,
    num_buckets=32,
    max_distance=128,
    capacity=None,
    name="switch_transformer",
):
    """Build the Switch Transformer, a `t5` in which every other block has experts.

        x = x + SelfAttention(RMSNorm(x)),  x = x + p_e FFN_e(RMSNorm(x)) for the most probable e

    | score | pattern | position | residual | depth | memory | loss |
    | --- | --- | --- | --- | --- | --- | --- |
    | dot + T5 bias | causal, cross | in the score | pre, experts | stack | KV cache | LM, balance |

    Cost: that of a `t5`: each token passes one expert; weights for all E experts.

    Use it for the largest number of weights at the cost of a small model.

    Args:
        vocabulary_size, num_layers, num_heads, hidden_dim: as `t5`.
        intermediate_dim: int. Width F of the feed-forward layers and of each expert.
        dropout, key_dim, num_buckets, max_distance: as `t5`.
        num_experts: int. Number of experts E.
        expert_every: int. The last of each `expert_every` blocks has experts: with 2 the second,
            the fourth and so on.
        gated: bool. If True, feed-forward layers are GEGLU, else ReLU.
        balance_loss: float. Weight of the loss for uneven use of experts.
        capacity: int. Most tokens of a text that an expert computes, as in `MixtureOfExperts`; None
            for no limit.

    Returns:
        An `EncoderDecoder`, from source ids (B, S) and target ids (B, T) to logits (B, T, V).

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.switch_transformer(100, num_layers=2, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16, num_experts=3)
        >>> model.encoder.blocks[1].feed_forward.num_experts
        3

    Differs from the paper: as `t5`; by default no token is dropped. A capacity is one of each text,
        so an output does not depend on the rest of the batch. The router has no noise.

    Reference: [Fedus et al., 2021](https://arxiv.org/abs/2101.03961), section 2, table 9.
    """
    check_sizes(expert_every=expert_every)
    # A tenth of the usual variance, with which the paper's large models are stable.
    scale = 0.1

    def feed_forward(index):
        kind, activation = (
            (layers.GatedFeedForward, "gelu") if gated else (layers.FeedForward, "relu")
        )
        layer = kind(
            intermediate_dim,
            activation,
            use_bias=False,
            dropout=dropout,
            kernel_initializer=scaled_normal(scale),
        )
        if (index + 1) % expert_every:
            return layer
        return layers.MixtureOfExperts(
            layer,
            num_experts,
            top_k=1,
            router="probability",
            balance_loss=balance_loss,
            capacity=capacity,
        )

    sizes = vocabulary_size, num_layers, num_heads, hidden_dim, key_dim, dropout
    return text_to_text(*sizes, num_buckets, max_distance, feed_forward, scale, name=name)
