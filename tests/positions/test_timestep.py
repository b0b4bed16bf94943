import keras
import numpy as np
import oracles
import pytest
from keras import ops

from keras_attn import positions
from keras_attn.positions import Timestep

B, T, D = 2, 7, 12
X = oracles.random(B, T, D)


def table(step, dim=D, layout="interleaved", count=T):
    """P^t of the paper, whose positions and steps begin with 1."""
    rows = [oracles.sinusoids(i, dim, layout) for i in range(1, count + 1)]
    return np.array(rows) + oracles.sinusoids(step + 1, dim, layout)


@pytest.mark.parametrize(
    "layout, dim, step", [("interleaved", 12, 0), ("concat", 11, 3), ("tensor2tensor", 12, 3)]
)
def test_oracle(layout, dim, step):
    output = Timestep(layout)(X[..., :dim], step=step)
    np.testing.assert_allclose(output, X[..., :dim] + table(step, dim, layout), atol=1e-5)


def test_a_step_may_be_a_tensor_and_positions_may_be_given():
    rows = np.array([[3, 0, 6, 1, 2, 5, 4], [0, 1, 2, 3, 4, 5, 6]])
    output = Timestep()(X, rows, step=ops.convert_to_tensor(2))
    np.testing.assert_allclose(output, X + table(2)[rows], atol=1e-5)
    one = Timestep()(X[:, :1], positions=[4], step=2)
    np.testing.assert_allclose(one, X[:, :1] + table(2)[4], atol=1e-5)


def test_half_precision():
    """Two tables of float32, each cast once: exact where angles in low precision are noise."""
    at = np.array([10, 1000, 4095])
    output = Timestep(dtype="mixed_bfloat16")(np.zeros((1, 3, 16), "float32"), at, step=5)
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    exact = np.array([oracles.sinusoids(p + 1, 16) for p in at]) + oracles.sinusoids(6, 16)
    np.testing.assert_allclose(oracles.numpy_of(output)[0], exact, atol=2.0**-6)


def test_names_and_errors():
    assert isinstance(positions.get("timestep"), Timestep)
    with pytest.raises(ValueError, match=r"`layout`.*layout='spiral'"):
        Timestep("spiral")
    for x in (X[0], X[None]):
        with pytest.raises(ValueError, match=r"`x` must have shape \(None, None, None\)"):
            Timestep()(x)
    with pytest.raises(ValueError, match=r"`positions`.*\(7,\).*\(8,\)"):
        Timestep()(X, np.arange(8))
