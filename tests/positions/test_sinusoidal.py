import keras
import numpy as np
import oracles
import pytest
from keras import ops

from keras_attn import positions
from keras_attn.positions import Sinusoidal

B, T, D = 2, 7, 12
X = oracles.random(B, T, D)
LAYOUTS = ["interleaved", "concat", "tensor2tensor"]


def table(dim, layout="interleaved", count=T):
    return np.array([oracles.sinusoids(p, dim, layout) for p in range(count)])


@pytest.mark.parametrize("layout, dim", list(zip(LAYOUTS, [12, 11, 12], strict=True)))
def test_oracle(layout, dim):
    x = X[..., :dim]
    np.testing.assert_allclose(Sinusoidal(layout)(x), x + table(dim, layout), atol=1e-5)


@pytest.mark.parametrize(
    "layout, policy", list(zip(LAYOUTS, ["mixed_float16", "bfloat16", "float16"], strict=True))
)
def test_dtype_policies(layout, policy):
    """The table is that of float32, cast once: exact where angles in low precision are noise."""
    at = np.array([10, 1000, 4095])
    zeros = np.zeros((1, len(at), 16), "float32")
    output = Sinusoidal(layout, dtype=policy)(zeros, at)
    compute = keras.dtype_policies.get(policy).compute_dtype
    assert keras.backend.standardize_dtype(output.dtype) == compute
    expected = ops.cast(Sinusoidal(layout)(zeros, at), compute)
    np.testing.assert_array_equal(oracles.numpy_of(output), oracles.numpy_of(expected))
    exact = [oracles.sinusoids(p, 16, layout) for p in at]
    np.testing.assert_allclose(oracles.numpy_of(output)[0], exact, atol=2**-8)


def test_positions_of_each_row():
    rows = np.array([[0, 1, 2, 0, 1, 0, 1], [3, 4, 5, 6, 7, 8, 9]])
    expected = X + table(D, count=10)[rows]
    np.testing.assert_allclose(Sinusoidal()(X, rows), expected, atol=1e-5)
    np.testing.assert_allclose(
        Sinusoidal()(X, positions=list(range(T))), Sinusoidal()(X), atol=1e-6
    )


def test_positions_begin_at_the_first_one():
    """M2M100 counts its tokens from 2."""
    layer = Sinusoidal("tensor2tensor", first_position=2)
    expected = X + table(D, "tensor2tensor", 2 + T)[2:]
    np.testing.assert_allclose(layer(X), expected, atol=1e-5)
    np.testing.assert_allclose(layer(X[:, 3:], np.arange(3, T)), expected[:, 3:], atol=1e-5)
    assert Sinusoidal.from_config(layer.get_config()).first_position == 2


def test_no_weights_and_the_mask_is_passed_on():
    layer = Sinusoidal()
    embedded = keras.layers.Embedding(5, D, mask_zero=True)(np.array([[1, 2, 0]]))
    np.testing.assert_array_equal(layer(embedded)._keras_mask, [[True, True, False]])
    assert layer.weights == []


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: Sinusoidal("spiral"), r"`layout`.*interleaved.*layout='spiral'"),
        (lambda: Sinusoidal(max_wavelength=0), r"`max_wavelength`.*max_wavelength=0"),
        (lambda: Sinusoidal(first_position=-1), r"`first_position`.*first_position=-1"),
        (lambda: Sinusoidal()(X[None]), r"`x` must have shape \(None, None, None\).*\(1, 2, 7, "),
        (lambda: Sinusoidal()(X, np.arange(T + 1)), r"`positions`.*\(7,\).*\(8,\)"),
        (lambda: positions.get("learnt"), r"position='learnt'.*sinusoidal"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
