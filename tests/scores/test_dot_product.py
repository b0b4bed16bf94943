import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.scores import DotProduct

B, N, T, S, H = 2, 3, 5, 7, 11
QUERY, KEY = oracles.random(B, N, T, H), oracles.random(B, N, S, H)


@pytest.mark.parametrize("scaled", [True, False])
def test_oracle(scaled):
    logits = np.asarray(DotProduct(scaled)(QUERY, KEY))
    assert logits.shape == (B, N, T, S)
    score = oracles.scaled_dot if scaled else oracles.dot
    for b, n, t, s in np.ndindex(B, N, T, S):
        expected = score(QUERY[b, n, t].astype("float64"), KEY[b, n, s].astype("float64"))
        assert abs(logits[b, n, t, s] - expected) < 1e-5


@pytest.mark.parametrize("scaled, divisor", [(True, 32), (False, 1)])
def test_float16_does_not_overflow(scaled, divisor):
    ones = tf.fill((1, 1, 1, 1024), tf.constant(16.0, "float16"))
    # As a number of Python: NumPy would compare in float16, where both are infinite.
    assert DotProduct(scaled)(ones, ones).numpy().item() == 16 * 16 * 1024 / divisor
