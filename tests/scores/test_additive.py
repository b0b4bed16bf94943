import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.scores import Additive

B, N, T, S, H, A = 2, 3, 5, 7, 4, 6
QUERY, KEY = oracles.random(B, N, T, H), oracles.random(B, N, S, H)


def built(*arguments, **keywords):
    layer = Additive(*arguments, **keywords)
    layer.build(QUERY.shape, KEY.shape)
    oracles.scramble(layer)
    return layer


def test_oracle():
    layer = built(A)
    shapes = [(N, H, A), (N, H, A), (N, A), (N, A)]
    assert [w.shape for w in layer.weights] == shapes
    score = oracles.additive(*(oracles.numpy_of(w) for w in layer.weights))
    logits = np.asarray(layer(QUERY, KEY))
    assert logits.shape == (B, N, T, S)
    for b, n, t, s in np.ndindex(B, N, T, S):
        assert abs(logits[b, n, t, s] - score(QUERY[b, n, t], KEY[b, n, s], n)) < 1e-5


def test_kernels_are_drawn_as_one_matrix_a_head():
    """Variance 1 / H, that of H numbers in, not of a convolution over the heads."""
    layer = Additive(64)
    layer.build((None, 8, None, 32))
    kernel = oracles.numpy_of(layer.query_kernel)
    assert abs(kernel.var() * 32 - 1) < 0.05
    assert np.any(kernel[0] != kernel[1])
    assert np.any(kernel != oracles.numpy_of(layer.key_kernel))


@pytest.mark.parametrize("units", [0, 1.5])
def test_errors(units):
    with pytest.raises(ValueError, match=f"`units`.*units={units}"):
        Additive(units)


@pytest.mark.slow
def test_one_head_in_a_graph_equals_eager_calls():
    """A product of (B, 1, T, H) and (1, H, A) ended the process in a graph of TensorFlow 2.21."""
    layer = Additive()
    query, key = oracles.random(61, 1, 16, 128), oracles.random(61, 1, 17, 128)
    layer.build(query.shape, key.shape)

    @tf.function(input_signature=[tf.TensorSpec((None, 1, None, 128))] * 2)
    def logits(query, key):
        return layer(query, key)

    np.testing.assert_allclose(logits(query, key), layer(query, key), atol=1e-4)
