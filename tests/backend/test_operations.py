"""Single tensor operations of the backend against NumPy."""

import numpy as np
import pytest
from keras import ops

from keras_attn.backend.operations import gather_rows, multiply_transposed, switch


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
@pytest.mark.parametrize("rest", [(), (5,), (5, 3)])
def test_rows_are_gathered_from_their_own_row_of_the_batch(rest, dtype):
    rng = np.random.default_rng(3)
    x = rng.integers(0, 2 if dtype == "bool" else 97, (2, 7, *rest)).astype(dtype)
    indices = rng.integers(0, 7, (2, 11)).astype("int32")
    expected = np.stack([row[i] for row, i in zip(x, indices, strict=True)])
    for gather in (gather_rows, gather_rows.portable):
        gathered = ops.convert_to_numpy(gather(ops.convert_to_tensor(x), indices))
        np.testing.assert_array_equal(gathered, expected)


def test_products_with_rows_that_are_columns():
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(2, 3, 5, 7)), rng.normal(size=(2, 3, 11, 7))
    expected = np.einsum("bnth,bnsh->bnts", x, y)
    for multiply in (multiply_transposed, multiply_transposed.portable):
        np.testing.assert_allclose(ops.convert_to_numpy(multiply(x, y)), expected, rtol=1e-6)


def test_a_switch_calls_the_branch_of_its_index_and_the_last_one_beyond():
    branches = [lambda n=n: (ops.full((2,), n), ops.cast(n, "float32")) for n in (3, 5, 7)]
    for index, expected in ((0, 3), (1, 5), (2, 7), (9, 7)):
        first, second = switch(ops.convert_to_tensor(index, "int32"), branches)
        assert ops.convert_to_numpy(first).tolist() == [expected] * 2 and float(second) == expected
