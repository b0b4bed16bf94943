"""Sizes, padding, cutting and positions, for lengths known or not."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attn.ops import cutting
from keras_attn.ops.operands import Operands
from keras_attn.ops.progression import Progression, positions_tensor

X = np.arange(24.0, dtype="float32").reshape(2, 1, 4, 3)


def everywhere(function, *inputs):
    """Results eagerly and in a graph that knows no size."""
    yield function(*inputs)
    signature = [tf.TensorSpec([None] * np.ndim(x), tf.as_dtype(x.dtype)) for x in inputs]
    yield tf.function(function, signature, autograph=False)(*inputs)


def test_a_known_size_is_an_int_and_an_unknown_one_a_tensor():
    assert cutting.sizes(X) == (2, 1, 4, 3) and cutting.size(X, 2) == 4

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def sizes(x):
        rows, columns = cutting.sizes(x)
        assert tf.is_tensor(rows) and columns == 3
        return rows

    assert int(sizes(np.ones((5, 3), "float32"))) == 5


@pytest.mark.parametrize("front, back", [(0, 0), (2, 0), (0, 1), (2, 3)])
@pytest.mark.parametrize("x", [X, X > 7], ids=["float32", "bool"])
def test_pad(x, front, back):
    for padded in everywhere(lambda x: cutting.pad(x, front, back), x):
        assert padded.dtype == x.dtype
        expected = np.pad(x, [(0, 0), (0, 0), (front, back), (0, 0)])
        np.testing.assert_array_equal(padded, expected)


def test_pad_of_nothing_is_the_same_tensor():
    assert cutting.pad(X, 0, 0) is X


def test_part_of_and_its_gradient():
    for part in everywhere(lambda x: cutting.part_of(x, 1, 2, axis=2), X):
        np.testing.assert_array_equal(part, X[:, :, 1:3])
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(cutting.part_of(x, 1, 2, axis=2) ** 2)
    expected = np.zeros_like(X)
    expected[:, :, 1:3] = 2 * X[:, :, 1:3]
    np.testing.assert_array_equal(tape.gradient(loss, x), expected)


@pytest.mark.parametrize("x, y, expected", [(1, 5, 1), (5, 5, 1), (6, 5, 2), (0, 5, 0)])
def test_ceil_div(x, y, expected):
    assert cutting.ceil_div(x, y) == expected
    assert int(cutting.ceil_div(tf.constant(x), y)) == expected


@pytest.mark.parametrize("start, length, step", [(0, 4, 1), (-3, 5, 1), (2, 3, 7), (0, 0, 1)])
def test_progression(start, length, step):
    progression = Progression(start, length, step)
    expected = [start + n * step for n in range(length)]
    assert progression.shape == (length,)
    for tensor in (progression.tensor(), positions_tensor(progression)):
        np.testing.assert_array_equal(tensor, expected)
        assert keras.backend.standardize_dtype(tensor.dtype) == "int32"
    np.testing.assert_array_equal(cutting.positions_of(progression), [[expected]])


def test_a_progression_of_unknown_start_and_length():
    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)] * 2, autograph=False)
    def positions(start, length):
        progression = Progression(start, length, 2)
        assert progression.shape == (None,)
        return progression.tensor()

    np.testing.assert_array_equal(positions(3, 4), [3, 5, 7, 9])


def test_positions_that_are_tensors_stay_so():
    given = np.array([[[3, 1, 2]]])
    assert cutting.positions_of(given) is given
    np.testing.assert_array_equal(positions_tensor([3, 1, 2]), [3, 1, 2])


def test_operands_of_some_heads_and_other_parts():
    x = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    real, shared = np.ones((2, 1, 4), bool), np.arange(12).reshape(1, 3, 4)
    operands = Operands(x, x, x, shared, Progression(0, 4), None, real=real, seed=np.array([1, 2]))
    for heads in ([1, 2], [0, 2]):
        some = operands.heads(heads)
        np.testing.assert_array_equal(some.query, x[:, heads])
        np.testing.assert_array_equal(some.query_positions, shared[:, heads])
        assert some.real is real and some.key_positions == Progression(0, 4)
    seeds = {tuple(np.asarray(operands.part(number).seed)) for number in range(20)}
    assert len(seeds) == 20
    assert operands.replace(seed=None).part(3).seed is None


def test_conditions_add_up():
    operands = Operands(*[None] * 5, None)
    both = operands.restricted(lambda i, j: i > j).restricted(lambda i, j: i + j > 3)
    i, j = np.arange(5)[:, None], np.arange(5)
    np.testing.assert_array_equal(both.condition(i, j), (i > j) & (i + j > 3))
    assert operands.drop_by(1) is None
    dropping = operands.replace(drop=lambda weights, seed: weights * seed)
    assert dropping.drop_by(3)(2) == 6
