"""Cutting the hidden axis into heads and joining it again."""

from keras import ops


def split_heads(x, num_heads):
    """(B, T, N * H) -> (B, N, T, H)."""
    batch, length = ops.shape(x)[0], ops.shape(x)[1]
    x = ops.reshape(x, (batch, length, num_heads, x.shape[-1] // num_heads))
    return ops.transpose(x, (0, 2, 1, 3))


def merge_heads(x):
    """(B, N, T, H) -> (B, T, N * H)."""
    batch, length = ops.shape(x)[0], ops.shape(x)[2]
    hidden_dim = x.shape[1] * x.shape[3]
    return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (batch, length, hidden_dim))
