"""A long memory of the keys and values of one attention layer."""

from keras_attn.memory.segment_memory import SegmentMemory
from keras_attn.ops.checks import check_that
from keras_attn.registry import register


@register
class KNNMemory(SegmentMemory):
    """Keep the last keys and values of one layer, among which each query finds the best.

        m' = SG(last M of [m; (k_1, v_1) .. (k_T, v_T)]),   SG stops the gradient

    For a depth with one block whose attention is a `keras_attn.layers.KNNAttention`: its queries
    find the `top_k` keys of the memory with the largest logits, and the other blocks read the
    segment alone. The state is that of a `SegmentMemory`, with heads in place of layers: `memory`
    (B, N, M, H + Hv), for N heads of keys, and `memory_length` (B,). Keys are kept as they were
    computed, so those of older weights differ in training. Time O(T N M H) for a segment of T, and
    memory O(B N M (H + Hv)).

    Use it for texts that refer to names and definitions many thousand tokens back.

    Args:
        memory_length: int. Number M of keys to keep.

    Example:
        >>> import keras_attn
        >>> from keras_attn.layers import FeedForward, KNNAttention, TransformerBlock
        >>> attention = KNNAttention(2, 4, top_k=8, score="relative", pattern="causal")
        >>> model = keras_attn.models.CausalLanguageModel(
        ...     keras_attn.layers.TokenEmbedding(50, 8),
        ...     keras_attn.depth.Stack([TransformerBlock(attention, FeedForward(16))]),
        ...     memory=keras_attn.memory.KNNMemory(4096))
        >>> model.initial_memory(batch_size=1)["memory"].shape
        TensorShape([1, 2, 4096, 8])

    Differs from the paper: as `keras_attn.layers.KNNAttention`; no other layer keeps a segment.

    Reference: [Wu et al., 2022](https://arxiv.org/abs/2203.08913), section 3.2.
    """

    def slot_shape(self, depth, hidden_dim):
        layers = depth.retrieving_layers
        check_that(len(layers) == 1, "a depth with one `KNNAttention`", depth=depth)
        return layers[0].num_key_value_heads, layers[0].key_dim + layers[0].value_dim
