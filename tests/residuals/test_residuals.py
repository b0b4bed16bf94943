import keras
import numpy as np
import oracles
import pytest

from keras_attn import residuals
from keras_attn.norms import LayerNorm
from keras_attn.residuals import PostNorm, PreNorm

B, T, D = 2, 5, 7
X, Y = oracles.random(B, T, D, scale=3), oracles.random(B, T, D, seed=1)


def built(kind, **arguments):
    layer = kind(**arguments)
    layer.build(X.shape)
    oracles.scramble(layer)
    return layer


def norm(layer, x):
    return oracles.layer_norm(x, *oracles.norm_weights(layer.norm), layer.norm.epsilon)


def test_output_equals_the_formula():
    post, pre = (built(kind, norm=LayerNorm(0.1)) for kind in (PostNorm, PreNorm))
    np.testing.assert_array_equal(post.before(X), X)
    np.testing.assert_allclose(post.after(X, Y), norm(post, X + Y), atol=1e-5)
    np.testing.assert_allclose(pre.before(X), norm(pre, X), atol=1e-5)
    np.testing.assert_array_equal(pre.after(X, Y), X + Y)


def test_only_pre_norm_leaves_the_sum_to_a_closing_norm():
    assert PreNorm.needs_closing_norm and not PostNorm.needs_closing_norm


def test_statistics_are_in_float32():
    """A mean of 100 and a spread of 1: the sum of squares would not fit a float16."""
    x = (100 + oracles.random(1, 3, 512)).astype("float32")
    layer = PostNorm(dtype="float16")
    low = keras.ops.cast(x, "float16")
    output = oracles.numpy_of(layer(low, keras.ops.zeros_like(low)))
    exact = oracles.layer_norm(oracles.numpy_of(low), 1.0, 0.0, 1e-6)
    assert np.abs(output - exact).max() < 4 * 2**-10


@pytest.mark.parametrize("residual", ["sandwich", None, PostNorm, keras.layers.Dense(3)])
def test_invalid_arguments_raise(residual):
    with pytest.raises(ValueError, match="residual.*Received: residual=.*post_norm, pre_norm"):
        residuals.get(residual)
