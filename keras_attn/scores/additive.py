"""Additive scores."""

import keras
from keras import ops

from keras_attn.initializers import MatrixInitializer
from keras_attn.ops.checks import check_sizes
from keras_attn.registry import register
from keras_attn.scores.score import ScoreLayer


@register
class Additive(ScoreLayer):
    """Score of a query and a key by a small network with one hidden layer.

        logit(q, k) = w . tanh(q W_q + k W_k + b)

    Each head has its own W_q, W_k (H, A), b and w (A,). Not scaled: tanh bounds it. Time and
    memory O(T S A) per head, A times the memory of a dot product.

    Use it for comparisons with attention in recurrent networks; a dot product is cheaper.

    Args:
        units: int. Width A of the hidden layer; by default the head size H.

    Call arguments:
        query: (B, N, T, H).
        key: (B, N, S, H).

    Returns:
        (B, N, T, S).

    Raises:
        ValueError: if `units` < 1.

    Example:
        >>> import keras_attn
        >>> layer = keras_attn.layers.MultiHeadAttention(2, 8, score="additive")

    Differs from the paper: one score network per head; the paper has one head, whose query is the
        previous decoder state.

    Reference: [Bahdanau et al., 2014](https://arxiv.org/abs/1409.0473), appendix A.1.2.
    """

    weight_axes = {
        "query_kernel": ("model",),
        "key_kernel": ("model",),
        "bias": ("model",),
        "output": ("model",),
    }

    def __init__(self, units=None, **kwargs):
        super().__init__(**kwargs)
        if units is not None:
            check_sizes(units=units)
        self.units = units

    def build(self, query_shape, key_shape=None):
        _, num_heads, _, head_dim = query_shape
        units = self.units or head_dim
        kernel = (num_heads, head_dim, units)
        initializer = MatrixInitializer(
            keras.initializers.VarianceScaling(1.0, "fan_in", "uniform"),
            (head_dim, num_heads * units),
            axes=(head_dim, num_heads, units),
            transpose=(1, 0, 2),
        )
        self.query_kernel = self.add_weight(kernel, initializer, name="query_kernel")
        self.key_kernel = self.add_weight(kernel, initializer, name="key_kernel")
        self.bias = self.add_weight((num_heads, units), "zeros", name="bias")
        self.output_kernel = self.add_weight((num_heads, units), "glorot_uniform", name="output")

    def products_of_tile(self, length, num_keys, head_dim, has_table):
        units = self.units or head_dim
        return (length + num_keys) * head_dim * units + length * num_keys * units

    def call(self, query, key, query_positions=None, key_positions=None):
        # Not `matmul`: of one head, oneDNN's kernel in TensorFlow 2.21 ends the process.
        query = ops.einsum("bnth,nha->bnta", query, self.query_kernel)
        query = query + ops.expand_dims(self.bias, 1)
        key = ops.einsum("bnsh,nha->bnsa", key, self.key_kernel)
        hidden = ops.tanh(ops.expand_dims(query, 3) + ops.expand_dims(key, 2))  # (B, N, T, S, A)
        output_kernel = ops.expand_dims(self.output_kernel, (1, 2))
        return ops.sum(hidden * output_kernel, axis=-1)  # (B, N, T, S)
