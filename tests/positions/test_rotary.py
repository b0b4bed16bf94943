import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn import positions
from keras_attn.positions import Rotary, Sinusoidal

B, N, T, H = 2, 3, 7, 10
X, HEADS = oracles.random(B, T, H), oracles.random(B, N, T, H)
BASE = 10000


def turned(x, places, base=BASE):
    """Pairs as complex numbers, times exp(i a): eq. 12 of the paper, for each pair."""
    x = np.asarray(x, "float64")
    size = x.shape[-1]
    numbers = x[..., 0::2] + 1j * x[..., 1::2]
    angles = np.asarray(places, "float64")[..., None] * base ** (-np.arange(0, size, 2) / size)
    numbers = numbers * np.exp(1j * angles)
    return np.stack([numbers.real, numbers.imag], axis=-1).reshape(x.shape)


def test_oracle():
    base = 50.0
    layer = Rotary(base)
    places = np.random.default_rng(0).integers(0, 50, (B, T))
    np.testing.assert_allclose(layer(X), turned(X, np.arange(T), base), atol=1e-5)
    np.testing.assert_allclose(layer(X, places), turned(X, places, base), atol=1e-5)
    np.testing.assert_allclose(layer(HEADS), turned(HEADS, np.arange(T), base), atol=1e-5)
    np.testing.assert_allclose(layer(HEADS, places[0]), turned(HEADS, places[0], base), atol=1e-5)
    expected = turned(HEADS, places[:, None], base)
    np.testing.assert_allclose(layer(HEADS, places), expected, atol=1e-5)
    assert layer.weights == []


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_the_result_is_that_of_float32_rounded_once_to_the_dtype_of_the_input(dtype):
    """Under any policy: angles in low precision would be noise this far."""
    places = np.array([10, 1000, 4095, 1, 2, 3, 4])
    x = tf.cast(X, dtype)
    for policy in ("float32", "mixed_bfloat16", "mixed_float16"):
        output = Rotary(dtype=policy)(x, places)
        assert output.dtype == dtype
        rounding = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float64": 0.0}[dtype]
        exact = turned(tf.cast(x, "float64"), places)
        np.testing.assert_allclose(oracles.numpy_of(output), exact, rtol=rounding, atol=1e-3)


def test_a_graph_of_unknown_sizes():
    specs = tf.TensorSpec((None, N, None, H)), tf.TensorSpec((None, None), "int32")
    run = tf.function(Rotary(), input_signature=specs)
    places = np.array([[3, 1, 4, 1, 5, 9, 2]] * B, "int32")
    np.testing.assert_allclose(run(HEADS, places), turned(HEADS, places[:, None]), atol=1e-5)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: Rotary(0), "`max_wavelength`.*max_wavelength=0"),
        (lambda: Rotary("a"), "`max_wavelength`.*max_wavelength='a'"),
        (lambda: Rotary()(X[0]), r"`x` must have shape.*\(7, 10\)"),
        (lambda: Rotary()(X[..., :5]), r"even.*\(2, 7, 5\)"),
        (lambda: Rotary()(X, np.arange(3)), r"`positions`.*\(7,\).*\(3,\)"),
        (lambda: positions.get_for_heads("sinusoidal"), "as 'rotary'.*position='sinusoidal'"),
        (lambda: positions.get_for_heads(Sinusoidal()), r"as 'rotary'.*position=Sinusoidal\(\)"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
