"""Grids of pixels and values as digits of a number."""

import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.ops.images import grid_coordinates, grid_positions, join_values, split_number


@pytest.mark.parametrize("shape", [(13,), (3, 5), (2, 3, 5), (2, 1, 3, 4)])
def test_coordinates_are_in_row_major_order(shape):
    expected = np.array(list(np.ndindex(*shape))).T
    coordinates = grid_coordinates(tf.range(int(np.prod(shape))), shape)
    assert len(coordinates) == len(shape)
    np.testing.assert_array_equal(coordinates, expected)


def test_a_position_beyond_the_grid_is_beyond_the_first_axis():
    rows, columns = grid_coordinates(tf.constant([14, 15, 31, -1]), (3, 5))
    np.testing.assert_array_equal(rows, [2, 3, 6, -1])
    np.testing.assert_array_equal(columns, [4, 0, 1, 4])


def test_positions_of_a_grid():
    x = oracles.random(2, 5, 3)
    np.testing.assert_array_equal(grid_positions(x, None, (2, 3)), np.arange(5))
    positions = np.array([[4, 1, 0, 2, 3], [0, 0, 1, 1, 5]])
    output = grid_positions(x, positions, (2, 3))
    np.testing.assert_array_equal(output, positions)
    assert output.dtype == "int32"
    with pytest.raises(ValueError, match="length 5, a table of 2 x 2"):
        grid_positions(x, None, (2, 2))
    with pytest.raises(ValueError, match=r"`positions`.*\(5,\).*\(4,\)"):
        grid_positions(x, np.arange(4), (2, 3))


@pytest.mark.parametrize("channels, num_values", [(1, 7), (3, 256), (4, 2)])
def test_values_are_the_digits_of_a_number(channels, num_values):
    values = np.random.default_rng(0).integers(0, num_values, (2, 5, channels))
    values[0, 0], values[0, 1] = 0, num_values - 1
    expected = [
        [int(sum(v * num_values**c for c, v in enumerate(p[::-1]))) for p in r] for r in values
    ]
    joined = join_values(values, num_values)
    np.testing.assert_array_equal(joined, expected)
    np.testing.assert_array_equal(split_number(joined, channels, num_values), values)
