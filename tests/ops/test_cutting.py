"""Sizes, padding and cutting, for lengths known or not."""

import numpy as np
import pytest
import tensorflow as tf

from keras_attn.ops import shapes as cutting

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
    for part in everywhere(lambda x: cutting.slice_axis(x, 1, 2, axis=2), X):
        np.testing.assert_array_equal(part, X[:, :, 1:3])
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(cutting.slice_axis(x, 1, 2, axis=2) ** 2)
    expected = np.zeros_like(X)
    expected[:, :, 1:3] = 2 * X[:, :, 1:3]
    np.testing.assert_array_equal(tape.gradient(loss, x), expected)


@pytest.mark.parametrize("x, y, expected", [(1, 5, 1), (5, 5, 1), (6, 5, 2), (0, 5, 0)])
def test_ceil_div(x, y, expected):
    assert cutting.ceil_div(x, y) == expected
    assert int(cutting.ceil_div(tf.constant(x), y)) == expected
