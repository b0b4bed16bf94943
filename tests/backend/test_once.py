import numpy as np
import pytest
import tensorflow as tf

from keras_attn.backend.loop_invariants import loop_invariants, once


def counter():
    calls = []

    def compute():
        calls.append(1)
        return tf.constant(len(calls))

    return compute, calls


def test_outside_every_call_computes():
    compute, calls = counter()
    assert [int(once(calls, "name", compute)) for _ in range(3)] == [1, 2, 3]


def test_inside_one_call_computes_for_each_owner_and_name():
    compute, calls = counter()
    other = object()
    with loop_invariants():
        for _ in range(3):
            assert int(once(calls, "name", compute)) == 1
        assert int(once(calls, "another", compute)) == 2
        assert int(once(other, "name", compute)) == 3
    with loop_invariants():
        assert int(once(calls, "name", compute)) == 4


def test_scopes_nest_and_end_with_an_error_too():
    compute, calls = counter()
    with loop_invariants():
        once(calls, "name", compute)
        with pytest.raises(RuntimeError), loop_invariants():
            assert int(once(calls, "name", compute)) == 2
            raise RuntimeError
        assert int(once(calls, "name", compute)) == 1
    once(calls, "name", compute)
    assert len(calls) == 3


def test_a_loop_finds_what_was_computed_before_it():
    """The product is outside the loop's body, and the loop's result is the same."""
    matrix = np.arange(4.0).reshape(2, 2)

    def squared():
        return once(matrix, "square", lambda: tf.matmul(matrix, matrix))

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
