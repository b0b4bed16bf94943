"""The largest numbers of an axis against NumPy."""

import numpy as np
import pytest
from keras import ops

from keras_attn.ops.sorting import top_k


def expected_top_k(x, k):
    """Return the k largest numbers, of equal ones the first, and their indices."""
    indices = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(x, indices, axis=-1), indices


# 997 is a prime: no groups of a size divide it. 7 and 5 numbers are too few to be grouped.
@pytest.mark.parametrize(
    "rows, size, k",
    [((3,), 997, 1), ((2, 3), 997, 5), ((3,), 961, 5), ((3,), 7, 3), ((2, 3), 5, 5)],
)
def test_the_largest_numbers_and_their_indices(rows, size, k):
    x = np.random.default_rng(size).normal(size=(*rows, size)).astype("float32")
    best, indices = top_k(ops.convert_to_tensor(x), k)
    expected, expected_indices = expected_top_k(x, k)
    np.testing.assert_array_equal(ops.convert_to_numpy(best), expected)
    np.testing.assert_array_equal(ops.convert_to_numpy(indices), expected_indices)
    assert ops.convert_to_numpy(indices).dtype == "int32"


@pytest.mark.parametrize("k, allowed", [(1, ()), (5, (996,)), (5, (400, 996, 2))])
def test_of_equal_numbers_the_first_is_taken_and_no_padding(allowed, k):
    x = np.full((2, 997), -np.inf, "float32")
    x[0, list(allowed)] = 1.0
    x[1] = np.random.default_rng(1).integers(0, 3, 997)
    _, indices = top_k(ops.convert_to_tensor(x), k)
    np.testing.assert_array_equal(ops.convert_to_numpy(indices), expected_top_k(x, k)[1])
