import math

import keras
import numpy as np
import oracles
import pytest

from keras_attn.ops.activations import activate, gelu_sigmoid, gelu_tanh


def sigmoid_oracle(x):
    return x / (1 + math.exp(-1.702 * x))


@pytest.mark.parametrize(
    "function, oracle", [(gelu_tanh, oracles.gelu_tanh), (gelu_sigmoid, sigmoid_oracle)]
)
def test_oracle(function, oracle):
    x = np.linspace(-4, 4, 33)
    expected = [oracle(value) for value in x]
    np.testing.assert_allclose(function(x.astype("float32")), expected, atol=1e-6)
    assert np.abs(np.array(expected) - [oracles.gelu(value) for value in x]).max() > 1e-4


@pytest.mark.parametrize("function", [gelu_tanh, gelu_sigmoid])
def test_save_config(function):
    assert keras.activations.get(keras.activations.serialize(function)) is function


@pytest.mark.parametrize("dtype, atol", [("float32", 1e-6), ("bfloat16", 0.03)])
def test_the_exact_gelu_equals_its_formula(dtype, atol):
    x = keras.ops.cast(np.linspace(-4, 4, 33), dtype)
    y = activate(keras.activations.gelu, x)
    assert keras.backend.standardize_dtype(y.dtype) == dtype
    expected = [oracles.gelu(float(value)) for value in x]
    np.testing.assert_allclose(keras.ops.cast(y, "float32"), expected, atol=atol)
