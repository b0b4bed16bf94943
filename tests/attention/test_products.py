import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.attention.softmax import query_keys, weights_values

B, N, S, H = 2, 3, 5, 4
KEY = oracles.random(B, N, S, H, seed=1)


@pytest.mark.parametrize("length, dynamic", [(1, False), (2, False), (1, True)])
def test_oracle(length, dynamic):
    query, weights = oracles.random(B, N, length, H), oracles.random(B, N, length, S, seed=2)
    logits, outputs = query_keys, weights_values
    if dynamic:
        keys = tf.TensorSpec((None, N, None, H))
        logits = tf.function(logits, [tf.TensorSpec((None, N, length, H)), keys])
        outputs = tf.function(outputs, [tf.TensorSpec((None, N, length, None)), keys])
    expected = np.zeros((B, N, length, S)), np.zeros((B, N, length, H))
    for b, n, t in np.ndindex(B, N, length):
        expected[0][b, n, t] = KEY[b, n] @ query[b, n, t]
        expected[1][b, n, t] = weights[b, n, t] @ KEY[b, n]
    np.testing.assert_allclose(logits(query, KEY), expected[0], atol=1e-5)
    np.testing.assert_allclose(outputs(weights, KEY), expected[1], atol=1e-5)
