"""Sizes, padding, slices and heads, for static and dynamic lengths."""

import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.ops import shapes
from keras_attn.ops.shapes import flatten_rows, head_size, known_shape, merge_heads, rows_to_heads

X = np.arange(24.0, dtype="float32").reshape(2, 1, 4, 3)


def eager_and_graph(function, *inputs):
    """Yield the result eagerly and in a graph with dynamic sizes."""
    yield function(*inputs)
    signature = [tf.TensorSpec([None] * np.ndim(x), tf.as_dtype(x.dtype)) for x in inputs]
    yield tf.function(function, signature, autograph=False)(*inputs)


def test_a_static_size_is_an_int_and_a_dynamic_one_a_tensor():
    assert shapes.sizes(X) == (2, 1, 4, 3) and shapes.size(X, 2) == 4

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def sizes(x):
        rows, columns = shapes.sizes(x)
        assert tf.is_tensor(rows) and columns == 3
        return rows

    assert int(sizes(np.ones((5, 3), "float32"))) == 5


@pytest.mark.parametrize("x, front, back", [(X, 2, 0), (X > 7, 0, 1), (X, 2, 3)])
def test_pad(x, front, back):
    for padded in eager_and_graph(lambda x: shapes.pad(x, front, back), x):
        assert padded.dtype == x.dtype
        expected = np.pad(x, [(0, 0), (0, 0), (front, back), (0, 0)])
        np.testing.assert_array_equal(padded, expected)


def test_pad_by_zero_returns_the_same_tensor():
    assert shapes.pad(X, 0, 0) is X


def test_slice_axis_and_its_gradient():
    for part in eager_and_graph(lambda x: shapes.slice_axis(x, 1, 2, axis=2), X):
        np.testing.assert_array_equal(part, X[:, :, 1:3])
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(shapes.slice_axis(x, 1, 2, axis=2) ** 2)
    expected = np.zeros_like(X)
    expected[:, :, 1:3] = 2 * X[:, :, 1:3]
    np.testing.assert_array_equal(tape.gradient(loss, x), expected)


@pytest.mark.parametrize("x, y, expected", [(1, 5, 1), (5, 5, 1), (6, 5, 2), (0, 5, 0)])
def test_ceil_div(x, y, expected):
    assert shapes.ceil_div(x, y) == expected
    assert int(shapes.ceil_div(tf.constant(x), y)) == expected


def flat_product(x):
    rows, unflatten = flatten_rows(x)
    return unflatten(tf.matmul(rows, MATRIX))


MATRIX = oracles.random(5, 7)


@pytest.mark.parametrize(
    "shape, spec",
    [
        ((4, 5), (None, 5)),
        ((3, 1, 5), (3, 1, 5)),
        ((2, 3, 4, 5), (None, None, None, 5)),
        ((0, 2, 5), (None, 2, 5)),
    ],
    ids=str,
)
def test_flattened_rows_give_the_product_of_any_rank(shape, spec):
    x = oracles.random(*shape)
    output = tf.function(flat_product, input_signature=[tf.TensorSpec(spec)])(x)
    assert output.shape == (*shape[:-1], 7)
    np.testing.assert_allclose(output, x @ MATRIX, atol=1e-5)


@pytest.mark.parametrize(("spec", "reads_sizes"), [((None, 1, 5), False), ((None, None, 5), True)])
def test_a_graph_reads_only_dynamic_sizes(spec, reads_sizes):
    graph = tf.function(flat_product).get_concrete_function(tf.TensorSpec(spec)).graph
    assert any(op.type == "Shape" for op in graph.get_operations()) == reads_sizes


def test_known_shape():
    assert tuple(known_shape(np.zeros((2, 3)))) == (2, 3)


def test_heads_are_consecutive_columns():
    x = oracles.random(2, 3, 20)
    (heads,) = rows_to_heads(x.reshape(6, 20), [(4, 5)], like=x)
    assert heads.shape == (2, 4, 3, 5)
    for n in range(4):
        np.testing.assert_array_equal(heads[:, n], x[:, :, 5 * n : 5 * n + 5])
    np.testing.assert_array_equal(merge_heads(heads), x.reshape(6, 20))


def test_rows_of_one_position_become_heads_without_its_axis():
    """Parts of equal and of different width, in groups of heads."""
    x = oracles.random(3, 2 * (5 + 5 + 7))
    q, k, v = rows_to_heads(x, [(2, 5), (2, 5), (2, 7)], like=x)
    groups = x.reshape(3, 2, 17)
    for heads, start, end in ((q, 0, 5), (k, 5, 10), (v, 10, 17)):
        np.testing.assert_array_equal(heads, groups[:, :, None, start:end])


def test_head_size():
    assert head_size(20, 4) == 5


@pytest.mark.parametrize("sizes", [(10, 3), (4, 8), (0, 2), (8, 0)])
def test_heads_that_do_not_divide_the_width_are_refused(sizes):
    with pytest.raises(ValueError, match="Received.*(hidden_dim|num_heads)="):
        head_size(*sizes)
