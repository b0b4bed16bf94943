"""`loop_invariant` computes a value once inside `loop_invariants`."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attn.backend.loop_invariants import in_loop_invariants, loop_invariant, loop_invariants


def counter():
    calls = []

    def compute():
        calls.append(1)
        return tf.constant(len(calls))

    return compute, calls


def test_outside_the_context_each_call_computes():
    compute, calls = counter()
    assert [int(loop_invariant(calls, "name", compute)) for _ in range(3)] == [1, 2, 3]


def test_inside_the_context_one_call_computes_per_owner_and_name():
    compute, calls = counter()
    other = object()
    assert not in_loop_invariants()
    with loop_invariants():
        assert in_loop_invariants()
        for _ in range(3):
            assert int(loop_invariant(calls, "name", compute)) == 1
        assert int(loop_invariant(calls, "another", compute)) == 2
        assert int(loop_invariant(other, "name", compute)) == 3
        for _ in range(2):
            assert int(loop_invariant((calls, other), "name", compute)) == 4
        assert int(loop_invariant((calls, calls), "name", compute)) == 5
    with loop_invariants():
        assert int(loop_invariant(calls, "name", compute)) == 6


def test_contexts_nest_and_end_after_an_error():
    compute, calls = counter()
    with loop_invariants():
        loop_invariant(calls, "name", compute)
        with pytest.raises(RuntimeError), loop_invariants():
            assert int(loop_invariant(calls, "name", compute)) == 2
            raise RuntimeError
        assert int(loop_invariant(calls, "name", compute)) == 1
    loop_invariant(calls, "name", compute)
    assert len(calls) == 3


@pytest.mark.slow
def test_a_graph_loop_reuses_values_computed_before_it():
    """The square is computed outside the loop body, and the result is the same."""
    matrix = np.arange(4.0).reshape(2, 2)

    def squared():
        return loop_invariant(matrix, "square", lambda: tf.matmul(matrix, matrix))

    @tf.function
    def power(x):
        with loop_invariants():
            x = tf.matmul(squared(), x)
            return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, squared() @ x), (0, x))[1]

    start = np.array([[1.0], [2.0]])
    np.testing.assert_allclose(power(start), np.linalg.matrix_power(matrix, 8) @ start)
    graph = power.get_concrete_function(start).graph
    body = next(f for f in graph.as_graph_def().library.function if "body" in f.signature.name)
    assert [node.op for node in body.node_def].count("MatMul") == 1


def test_a_graph_loop_reads_variables_once():
    """The body gets the matrix as a tensor, and the result is the same."""
    matrix = keras.Variable(np.arange(4.0, dtype="float32").reshape(2, 2))

    @tf.function
    def power(x):
        with loop_invariants([matrix]):
            step = (lambda i, x: i < 3), (lambda i, x: (i + 1, tf.matmul(matrix, x)))
            return tf.while_loop(*step, (0, x))[1]

    start = np.array([[1.0], [2.0]], "float32")
    expected = np.linalg.matrix_power(np.arange(4.0).reshape(2, 2), 3) @ start
    np.testing.assert_allclose(power(start), expected)
    graph = power.get_concrete_function(start).graph.as_graph_def()
    assert "ReadVariableOp" in {node.op for node in graph.node}
    inside = {node.op for function in graph.library.function for node in function.node_def}
    assert "ReadVariableOp" not in inside
