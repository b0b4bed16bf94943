"""`AxialRotary` against complex numbers pixel by pixel, and its laws."""

import numpy as np
import oracles
import pytest

from keras_attn.layers import MultiHeadAttention
from keras_attn.positions import AxialRotary, Rotary

B, N, ROWS, COLUMNS, H = 2, 3, 3, 5, 12
T = ROWS * COLUMNS
X = oracles.random(B, N, T, H)


def turned(x, rows, columns, base=100):
    """Each pair of the first half by its row's angle, of the second half by its column's."""
    found = np.empty(x.shape)
    for place in np.ndindex(*x.shape[:-1]):
        for i in range(H // 2):
            of_rows, pair = i < H // 4, i % (H // 4)
            coordinate = rows[place[-1]] if of_rows else columns[place[-1]]
            angle = coordinate * base ** (-2 * pair / (H / 2))
            number = complex(*x[(*place, slice(2 * i, 2 * i + 2))]) * np.exp(1j * angle)
            found[(*place, slice(2 * i, 2 * i + 2))] = number.real, number.imag
    return found


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


def test_the_distances_of_rows_and_columns_alone_count():
    layer, width = AxialRotary((50, 50)), 50
    query, key = X, oracles.random(B, N, T, H, seed=1)
    rows, columns = np.divmod(np.arange(T), COLUMNS)

    def products(down, right):
        places = (rows + down) * width + columns + right
        return np.einsum("bnth,bnsh->bnts", layer(query, places), layer(key, places))

    for down, right in ((7, 0), (0, 11), (13, 5)):
        np.testing.assert_allclose(products(down, right), products(0, 0), atol=1e-4)
    # The same distance in positions is another in the grid.
    apart = AxialRotary((ROWS, COLUMNS))(key, (np.arange(T) + 2) % T)
    assert np.abs(np.asarray(apart) - AxialRotary((ROWS, COLUMNS))(key)).max() > 0.1


def test_a_grid_of_one_row_turns_the_second_half_as_rotary():
    found = AxialRotary((1, T))(X)
    np.testing.assert_array_equal(found[..., : H // 2], X[..., : H // 2])
    np.testing.assert_array_equal(found[..., H // 2 :], Rotary(100)(X[..., H // 2 :]))


def test_attention_with_it_decodes_and_checks():
    layer = MultiHeadAttention(2, 8, position=AxialRotary((ROWS, COLUMNS)), pattern="causal")
    x = oracles.random(B, T, 7)
    whole = np.asarray(layer(x, x))
    last = layer(x[:, -4:], x, query_positions=np.arange(T - 4, T))
    np.testing.assert_allclose(last, whole[:, -4:], atol=1e-5)
    again = MultiHeadAttention.from_config(layer.get_config())
    again(x, x)
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(x, x), whole)


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
