"""Attention packages on PyTorch: local-attention, reformer-pytorch and x-transformers."""

from ..operations import HEAD_DIM, HEADS
from .attention_inputs import heads, sequence
from .attention_torch import torch_task


def local(length, gflop, window, backward=False):
    """`LocalAttention` with its defaults, causal: a block attends to itself and the last one."""
    from local_attention import LocalAttention

    attention = LocalAttention(window, causal=True, autopad=True, use_rotary_pos_emb=False)
    return torch_task(attention, heads(length), gflop, backward)


def lsh(length, gflop, chunk, rounds, backward=False):
    """`LSHAttention` as it is by default, causal; its batch axis holds the heads."""
    from reformer_pytorch import LSHAttention

    attention = LSHAttention(bucket_size=chunk, n_hashes=rounds, causal=True)
    query, value = (array[0] for array in heads(length, count=2))
    return torch_task(lambda qk, v: attention(qk, v)[0], [query, value], gflop, backward)


def layer(length, gflop, backward=False):
    """x-transformers' `Attention` through torch's kernel, causal."""
    from x_transformers.x_transformers import Attention

    attention = Attention(HEADS * HEAD_DIM, dim_head=HEAD_DIM, heads=HEADS, causal=True, flash=True)
    weights = list(attention.parameters())
    return torch_task(attention, [sequence(length)], gflop, backward, weights)
