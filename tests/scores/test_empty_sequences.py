"""Attention of no queries, no keys or no rows, eagerly and in graphs of any length."""

import numpy as np
import pytest
import tensorflow as tf

from keras_attn import scores
from keras_attn.layers import MultiHeadAttention
from keras_attn.patterns import Local

SHAPES = [(0, 5, 5), (2, 0, 0), (2, 0, 5), (2, 5, 0), (2, 3, 5)]
SCORES = {
    "t5": lambda: scores.DotProduct(scaled=False) + scores.T5Bias(8, 16, bidirectional=True),
    "relative": lambda: "relative",
}


def attention(score, pattern):
    layer = MultiHeadAttention(2, 4, score=SCORES[score](), pattern=pattern)
    layer(np.ones((1, 3, 8), "float32"), np.ones((1, 3, 8), "float32"))
    return layer


@pytest.mark.parametrize("score, pattern", [("t5", "dense"), ("relative", Local(3))])
def test_empty_sequences_have_outputs_of_their_shape(score, pattern):
    layer = attention(score, pattern)
    for batch, length, num_keys in SHAPES:
        found = layer(np.ones((batch, length, 8)), np.ones((batch, num_keys, 8)))
        assert found.shape == (batch, length, 8) and np.isfinite(np.asarray(found)).all()


@pytest.mark.slow
def test_a_graph_of_any_length_takes_empty_sequences():
    layer = attention("relative", "dense")
    of_any = tf.TensorSpec([None, None, 8])
    run = tf.function(layer, input_signature=[of_any, of_any], autograph=False)
    for batch, length, num_keys in SHAPES:
        given = np.ones((batch, length, 8), "float32"), np.ones((batch, num_keys, 8), "float32")
        found = np.asarray(run(*given))
        assert found.shape == (batch, length, 8)
        np.testing.assert_allclose(found, layer(*given), atol=1e-6)
