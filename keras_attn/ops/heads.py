"""Cutting the hidden axis into heads and joining it again."""

from keras import ops

from keras_attn.ops.affine import known_shape
from keras_attn.ops.checks import check_sizes


def head_size(hidden_dim, num_heads):
    """Size H of each head, such that the heads together are as wide as the hidden layer."""
    check_sizes(hidden_dim=hidden_dim, num_heads=num_heads)
    if hidden_dim % num_heads:
        raise ValueError(
            "`hidden_dim` must be a multiple of `num_heads`. "
            f"Received: hidden_dim={hidden_dim}, num_heads={num_heads}."
        )
    return hidden_dim // num_heads


def split_heads(x, num_heads):
    """(B, T, N * H) -> (B, N, T, H)."""
    batch, length, _ = known_shape(x)
    head = x.shape[-1] // num_heads
    if x.shape[1] == 1:  # as in decoding: the axes are in this order already
        return ops.reshape(x, (batch, num_heads, 1, head))
    x = ops.reshape(x, (batch, length, num_heads, head))
    return ops.transpose(x, (0, 2, 1, 3))


def merge_heads(x):
    """(B, N, T, H) -> (B, T, N * H)."""
    hidden_dim = x.shape[1] * x.shape[3]
    batch, _, length, _ = known_shape(x)
    if x.shape[2] != 1:
        x = ops.transpose(x, (0, 2, 1, 3))
    return ops.reshape(x, (batch, length, hidden_dim))
