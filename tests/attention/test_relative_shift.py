import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.attention.inputs import PositionRange, distances_between, positions_by_head
from keras_attn.attention.relative_shift import distance_products, relative_shift, table_columns

B, N, H = 2, 3, 4
LENGTHS = [(1, 1), (1, 5), (3, 5), (5, 3), (4, 4)]


@pytest.mark.parametrize("length, num_keys", LENGTHS)
def test_the_shift(length, num_keys):
    products = oracles.random(B, N, length, length + num_keys)
    shifted = oracles.numpy_of(relative_shift(products, num_keys))
    assert shifted.shape == (B, N, length, num_keys)
    for t, s in np.ndindex(length, num_keys):
        expected = products[:, :, t, length - 1 - t + s]
        np.testing.assert_array_equal(shifted[:, :, t, s], expected)


def columns(distances, heads):
    """A table whose column is a known function of its distance."""
    d = np.asarray(table_columns(distances), "float32")
    table = np.stack([np.sin(d * (h + 1)) for h in range(H)])  # (H, L + 1)
    if heads:
        table = np.stack([table * (n + 1) for n in range(N)])
    return table


def expected_products(query, i, j, heads):
    products = np.zeros((B, N, len(i), len(j)))
    for n, t, s in np.ndindex(N, len(i), len(j)):
        column = np.sin((i[t] - j[s]) * np.arange(1.0, H + 1)) * (n + 1 if heads else 1)
        products[:, n, t, s] = query[:, n, t] @ column
    return products


@pytest.mark.parametrize("step, heads", [(1, True), (3, False)])
@pytest.mark.parametrize("length, num_keys", LENGTHS)
def test_products_with_the_columns_of_the_distances(length, num_keys, step, heads):
    """Keys before and after the queries; a table for this tile alone, and one for more."""
    query = oracles.random(B, N, length, H)
    queries, keys = PositionRange(2 * step, length, step), PositionRange(-step, num_keys, step)
    i, j = np.asarray(queries.tensor()), np.asarray(keys.tensor())
    needed = distances_between(queries, keys)
    assert set(np.asarray(needed.tensor())) == {a - b for a in i for b in j}
    wide = PositionRange(needed.start - 4 * step, needed.length + 9, step)
    expected = expected_products(query, i, j, heads)
    for distances in (needed, wide):
        products = distance_products(query, columns(distances, heads), distances, needed)
        np.testing.assert_allclose(products, expected, atol=1e-5)


@pytest.mark.slow
def test_unknown_lengths():
    @tf.function(input_signature=[tf.TensorSpec([None, N, None, H]), tf.TensorSpec([], tf.int32)])
    def run(query, num_keys):
        length = tf.shape(query)[2]
        needed = distances_between(
            PositionRange(num_keys - length, length), PositionRange(0, num_keys)
        )
        d = tf.cast(table_columns(needed), "float32")
        table = tf.sin(d * tf.range(1.0, H + 1)[:, None])
        return distance_products(query, table, needed, needed)

    for length, num_keys in LENGTHS:
        query = oracles.random(B, N, length, H)
        i = num_keys - length + np.arange(length)
        expected = expected_products(query, i, np.arange(num_keys), heads=False)
        np.testing.assert_allclose(run(query, num_keys), expected, atol=1e-5)


def test_positions_in_no_common_order():
    assert distances_between(np.arange(3), PositionRange(0, 3)) is None
    assert distances_between(PositionRange(0, 3), np.arange(3)) is None
    assert distances_between(PositionRange(0, 3, 2), PositionRange(0, 3)) is None


def test_head_positions():
    assert positions_by_head(PositionRange(4, 3)).shape == (1, 1, 3)
    for shape, expected in (((3,), (1, 1, 3)), ((2, 3), (2, 1, 3)), ((2, 5, 3), (2, 5, 3))):
        assert positions_by_head(np.zeros(shape, "int64")).shape == expected
    np.testing.assert_array_equal(positions_by_head(PositionRange(4, 3, 2))[0, 0], [4, 6, 8])
