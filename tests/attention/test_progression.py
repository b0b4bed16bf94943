import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attn.attention.inputs import (
    PositionRange,
    default_positions,
    positions_by_head,
    positions_tensor,
)


@pytest.mark.parametrize("start, length, step", [(0, 4, 1), (-3, 5, 1), (2, 3, 7), (0, 0, 1)])
def test_progression(start, length, step):
    progression = PositionRange(start, length, step)
    expected = [start + n * step for n in range(length)]
    assert progression.shape == (length,)
    for tensor in (progression.tensor(), positions_tensor(progression)):
        np.testing.assert_array_equal(tensor, expected)
        assert keras.backend.standardize_dtype(tensor.dtype) == "int32"
    np.testing.assert_array_equal(positions_by_head(progression), [[expected]])


def test_a_progression_of_unknown_start_and_length():
    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)] * 2, autograph=False)
    def positions(start, length):
        progression = PositionRange(start, length, 2)
        assert progression.shape == (None,)
        return progression.tensor()

    np.testing.assert_array_equal(positions(3, 4), [3, 5, 7, 9])


def test_positions_that_are_tensors_stay_so():
    for positions in ([3, 1, 2], [[3, 1, 2]], [[[3, 1, 2]]]):
        np.testing.assert_array_equal(positions_by_head(np.array(positions)), [[[3, 1, 2]]])
    np.testing.assert_array_equal(positions_tensor([3, 1, 2]), [3, 1, 2])


def test_queries_are_the_last_of_the_keys():
    queries, keys = default_positions(3, 7)
    np.testing.assert_array_equal(queries.tensor(), [4, 5, 6])
    np.testing.assert_array_equal(keys.tensor(), range(7))
