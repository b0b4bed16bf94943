import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.ops.images import grid_places, grid_positions


@pytest.mark.parametrize("shape", [(13,), (3, 5), (2, 3, 5), (2, 1, 3, 4)])
def test_places_count_like_an_odometer(shape):
    expected = np.array(list(np.ndindex(*shape))).T
    places = grid_places(tf.range(int(np.prod(shape))), shape)
    assert len(places) == len(shape)
    np.testing.assert_array_equal(places, expected)


def test_a_position_beyond_the_grid_is_beyond_the_first_axis():
    rows, columns = grid_places(tf.constant([14, 15, 31, -1]), (3, 5))
    np.testing.assert_array_equal(rows, [2, 3, 6, -1])
    np.testing.assert_array_equal(columns, [4, 0, 1, 4])


def test_positions():
    x = oracles.random(2, 5, 3)
    np.testing.assert_array_equal(grid_positions(x, None, (2, 3)), np.arange(5))
    given = np.array([[4, 1, 0, 2, 3], [0, 0, 1, 1, 5]])
    found = grid_positions(x, given, (2, 3))
    np.testing.assert_array_equal(found, given)
    assert found.dtype == "int32"
    with pytest.raises(ValueError, match="length 5, a grid of 2 x 2"):
        grid_positions(x, None, (2, 2))
    with pytest.raises(ValueError, match=r"`positions`.*\(5,\).*\(4,\)"):
        grid_positions(x, np.arange(4), (2, 3))
