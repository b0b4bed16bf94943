import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.ops.shapes import flatten_rows, known_shape

SHAPES = [(4, 5), (3, 1, 5), (3, 2, 5), (2, 3, 4, 5), (0, 2, 5)]


def product(x):
    rows, unflatten = flatten_rows(x)
    return unflatten(tf.matmul(rows, MATRIX))


MATRIX = oracles.random(5, 7)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("unknown", ["nothing", "batch", "all but the last"])
def test_oracle(shape, unknown):
    x = oracles.random(*shape)
    known = {"nothing": shape, "batch": (None, *shape[1:])}
    spec = known.get(unknown, (*[None] * (len(shape) - 1), shape[-1]))
    output = tf.function(product, input_signature=[tf.TensorSpec(spec)])(x)
    assert output.shape == (*shape[:-1], 7)
    np.testing.assert_allclose(output, x @ MATRIX, atol=1e-5)


@pytest.mark.parametrize(("spec", "asks"), [((None, 1, 5), False), ((None, None, 5), True)])
def test_a_graph_asks_only_for_sizes_that_are_needed(spec, asks):
    graph = tf.function(product).get_concrete_function(tf.TensorSpec(spec)).graph
    assert any(op.type == "Shape" for op in graph.get_operations()) == asks


def test_known_shape():
    assert tuple(known_shape(np.zeros((2, 3)))) == (2, 3)
