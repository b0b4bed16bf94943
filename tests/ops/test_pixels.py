import numpy as np
import pytest

from keras_attn.ops.images import join_values, split_number


@pytest.mark.parametrize("channels, num_values", [(1, 7), (3, 256), (4, 2)])
def test_digits(channels, num_values):
    values = np.random.default_rng(0).integers(0, num_values, (2, 5, channels))
    values[0, 0], values[0, 1] = 0, num_values - 1
    expected = [
        [int(sum(v * num_values**c for c, v in enumerate(p[::-1]))) for p in r] for r in values
    ]
    joined = join_values(values, num_values)
    np.testing.assert_array_equal(joined, expected)
    np.testing.assert_array_equal(split_number(joined, channels, num_values), values)
