import numpy as np
import oracles
import pytest

from keras_attn.ops.sinusoids import LAYOUTS, sinusoids

POSITIONS = np.array([0, 1, 2, 10, 255, 256, 1000, 4095])


@pytest.mark.parametrize("layout, dim", list(zip(LAYOUTS, [7, 16, 2], strict=True)))
def test_oracle(layout, dim):
    expected = [oracles.sinusoids(p, dim, layout) for p in POSITIONS]
    # A float32 angle of up to 4095 is known to 2^-12; sines and cosines inherit that.
    np.testing.assert_allclose(sinusoids(POSITIONS, dim, layout), expected, atol=4e-4)
    np.testing.assert_allclose(sinusoids(POSITIONS[:4], dim, layout), expected[:4], atol=2e-6)


def test_max_wavelength():
    expected = [oracles.sinusoids(p, 8, max_wavelength=100) for p in range(20)]
    output = sinusoids(np.arange(20), 8, max_wavelength=100)
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_concat_is_a_permutation_of_the_papers_table_and_tensor2tensor_is_not():
    tables = {layout: np.sort(sinusoids(np.arange(50), 8, layout), axis=1) for layout in LAYOUTS}
    np.testing.assert_array_equal(tables["concat"], tables["interleaved"])
    assert np.abs(tables["tensor2tensor"] - tables["interleaved"]).max() > 0.1


def test_positions_of_any_rank():
    positions = np.array([[3, 1], [4, 1], [5, 9]])
    table = np.asarray(sinusoids(np.arange(10), 6))
    np.testing.assert_allclose(sinusoids(positions, 6), table[positions], atol=1e-6)
    np.testing.assert_allclose(sinusoids(np.int32(7), 6), table[7], atol=1e-6)
