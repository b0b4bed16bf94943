"""Parity with reformer-pytorch 1.4.4, given the same buckets.

Duplicates are allowed there, and compared here with one round or with `wrap`: without them, it
counts keys that its look-back shows across rounds as met in none.
"""

import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.attention.inputs import AttentionInputs, PositionRange
from keras_attn.patterns import LSH
from keras_attn.scores import SharedQK

torch = pytest.importorskip("torch", reason="reformer-pytorch needs PyTorch")
reformer_pytorch = pytest.importorskip(
    "reformer_pytorch", reason="pip install 'keras_attn[bench]' installs this peer"
)

B, N, H, CHUNK, LENGTH = 2, 2, 8, 4, 32
QUERY = oracles.random(B, N, LENGTH, H, scale=3.0)
VALUE = oracles.random(B, N, LENGTH, H, seed=1)
UPSTREAM = oracles.random(B, N, LENGTH, H, seed=2)


def theirs(buckets, num_rounds, causal, across_buckets):
    layer = reformer_pytorch.LSHAttention(
        bucket_size=CHUNK,
        n_hashes=num_rounds,
        causal=causal,
        allow_duplicate_attention=True,
        attend_across_buckets=across_buckets,
    )
    # Double precision, in which its constants for what is masked cost nothing.
    query, value = (
        torch.tensor(x.reshape(B * N, LENGTH, H), dtype=torch.float64, requires_grad=True)
        for x in (QUERY, VALUE)
    )
    rounds = np.arange(num_rounds)[:, None] * (buckets.max() + 1)
    hashes = torch.tensor((buckets + rounds).reshape(B * N, -1), dtype=torch.int64)
    layer.hash_vectors = lambda *args, **kwargs: hashes
    output = layer(query, value)[0]
    output.backward(torch.tensor(UPSTREAM.reshape(output.shape), dtype=torch.float64))
    results = output.detach(), query.grad, value.grad
    return [x.numpy().reshape(B, N, LENGTH, H) for x in results]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "num_rounds, more",
    [
        (1, dict()),
        (1, dict(across_buckets=True, wrap=True)),
        (4, dict(across_buckets=True, wrap=True)),
    ],
)
def test_output_and_gradients(num_rounds, more, causal):
    pattern = LSH(CHUNK, num_rounds, causal=causal, **more)
    query, value, here = tf.constant(QUERY), tf.constant(VALUE), PositionRange(0, LENGTH)
    with tf.GradientTape() as tape:
        tape.watch([query, value])
        operands = AttentionInputs(query, query, value, here, here, SharedQK())
        output, _ = pattern.plan.attend(operands)
        total = tf.reduce_sum(output * UPSTREAM)
    ours = [output, *tape.gradient(total, [query, value])]
    buckets = pattern.buckets(operands).numpy()
    expected = theirs(buckets, num_rounds, causal, bool(more))
    for mine, peer in zip(ours, expected, strict=True):
        np.testing.assert_allclose(mine, peer, atol=2e-5)
