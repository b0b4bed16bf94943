"""Attention of no queries, no keys or no rows, eagerly and in graphs of any length."""

import numpy as np
import pytest
import tensorflow as tf
from marks import slow

from keras_attn import scores
from keras_attn.layers import MultiHeadAttention
from keras_attn.patterns import LSH, Local

SHAPES = [(0, 5, 5), (2, 0, 0), (2, 0, 5), (2, 5, 0), (2, 3, 5)]


def attention(pattern, score="relative"):
    layer = MultiHeadAttention(2, 4, score=score, pattern=pattern)
    layer(np.ones((1, 3, 8), "float32"), np.ones((1, 3, 8), "float32"))
    return layer


def test_empty_sequences_have_outputs_of_their_shape():
    layer = attention(Local(3))
    for batch, length, num_keys in SHAPES:
        output = layer(np.ones((batch, length, 8)), np.ones((batch, num_keys, 8)))
        assert output.shape == (batch, length, 8) and np.isfinite(np.asarray(output)).all()


@pytest.mark.parametrize(
    "pattern, score",
    [
        ("causal", scores.Kernel()),
        slow("dense", scores.FAVOR(16)),
        slow(LSH(4, num_buckets=4), "shared_qk"),
        slow(LSH(4, num_buckets=4, across_buckets=True, wrap=True), "shared_qk"),
    ],
)
def test_sums_and_buckets_of_no_position_are_empty(pattern, score):
    layer = attention(pattern, score)
    for batch, length in ((0, 5), (2, 0)):
        x = np.ones((batch, length, 8), "float32")
        assert layer(x, x).shape == (batch, length, 8)


@pytest.mark.slow
def test_a_graph_of_any_length_takes_empty_sequences():
    layer = attention("dense")
    spec = tf.TensorSpec([None, None, 8])
    run = tf.function(layer, input_signature=[spec, spec], autograph=False)
    for batch, length, num_keys in SHAPES:
        inputs = np.ones((batch, length, 8), "float32"), np.ones((batch, num_keys, 8), "float32")
        output = np.asarray(run(*inputs))
        assert output.shape == (batch, length, 8)
        np.testing.assert_allclose(output, layer(*inputs), atol=1e-6)
