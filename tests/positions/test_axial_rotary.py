"""`AxialRotary` against complex numbers pixel by pixel, and its laws."""

import numpy as np
import oracles
import pytest

from keras_attn.positions import AxialRotary

B, N, ROWS, COLUMNS, H = 2, 3, 3, 5, 12
T = ROWS * COLUMNS
X = oracles.random(B, N, T, H)


def turned(x, rows, columns, base=100):
    """Each pair of the first half by its row's angle, of the second half by its column's."""
    rotated = np.empty(x.shape)
    for place in np.ndindex(*x.shape[:-1]):
        for i in range(H // 2):
            is_row, pair = i < H // 4, i % (H // 4)
            coordinate = rows[place[-1]] if is_row else columns[place[-1]]
            angle = coordinate * base ** (-2 * pair / (H / 2))
            number = complex(*x[(*place, slice(2 * i, 2 * i + 2))]) * np.exp(1j * angle)
            rotated[(*place, slice(2 * i, 2 * i + 2))] = number.real, number.imag
    return rotated


def test_oracle():
    layer, places = AxialRotary((ROWS, COLUMNS)), np.arange(T)
    rows, columns = np.divmod(places, COLUMNS)
    np.testing.assert_allclose(layer(X), turned(X, rows, columns), atol=1e-5)
    order = np.random.default_rng(0).permutation(T)
    expected = turned(X, rows[order], columns[order])
    np.testing.assert_allclose(layer(X, order), expected, atol=1e-5)
    np.testing.assert_array_equal(layer(X, np.tile(order, (B, 1))), layer(X, order))
    np.testing.assert_array_equal(layer(X[:, 0]), layer(X)[:, 0])
    other = AxialRotary((ROWS, COLUMNS), max_wavelength=7)
    np.testing.assert_allclose(other(X), turned(X, rows, columns, base=7), atol=1e-5)
    assert layer.weights == []


def test_low_precision_rounds_once():
    layer = AxialRotary((1, 5000), dtype="float16")
    places = np.arange(4985, 5000)
    exact = turned(X, np.zeros(T), places)
    x = X.astype("float16")
    np.testing.assert_allclose(oracles.numpy_of(layer(x, places)), exact, atol=4e-3)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: AxialRotary(5), "`shape` must be two integers of at least 1.*shape=5"),
        (lambda: AxialRotary((3, 0)), r"`shape`.*\(3, 0\)"),
        (lambda: AxialRotary((3, 5), 0), "`max_wavelength`.*max_wavelength=0"),
        (lambda: AxialRotary((3, 5))(X[..., :10]), r"multiple of 4.*\(2, 3, 15, 10\)"),
        (lambda: AxialRotary((2, 7))(X), "longer than the table.*length 15.*2 x 7"),
        (lambda: AxialRotary((2, 7))(X, np.arange(15)), "longer than the table.*length 15.*2 x 7"),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()
