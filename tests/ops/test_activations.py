import keras
import numpy as np
import oracles

from keras_attn.ops.activations import gelu_tanh


def test_oracle():
    x = np.linspace(-4, 4, 33)
    expected = [oracles.gelu_tanh(value) for value in x]
    np.testing.assert_allclose(gelu_tanh(x.astype("float32")), expected, atol=1e-6)
    assert np.abs(np.array(expected) - [oracles.gelu(value) for value in x]).max() > 1e-4


def test_save_config():
    assert keras.activations.get(keras.activations.serialize(gelu_tanh)) is gelu_tanh
