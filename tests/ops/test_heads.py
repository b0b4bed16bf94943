import numpy as np
import oracles
import pytest

from keras_attn.ops.shapes import head_size, merge_heads, split_heads


def test_heads_are_consecutive_columns():
    x = oracles.random(2, 3, 20)
    heads = split_heads(x, 4)
    assert heads.shape == (2, 4, 3, 5)
    for n in range(4):
        np.testing.assert_array_equal(heads[:, n], x[:, :, 5 * n : 5 * n + 5])


def test_limit_merging_undoes_splitting():
    x = oracles.random(2, 3, 20)
    np.testing.assert_array_equal(merge_heads(split_heads(x, 4)), x)


def test_head_size():
    assert head_size(20, 4) == 5


@pytest.mark.parametrize("sizes", [(10, 3), (4, 8), (0, 2), (8, 0)])
def test_heads_that_do_not_divide_the_width(sizes):
    with pytest.raises(ValueError, match="Received.*(hidden_dim|num_heads)="):
        head_size(*sizes)
