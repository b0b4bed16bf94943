"""Dispatch of functions to the implementation of the current backend."""

import importlib

import numpy as np
import pytest
import tensorflow as tf

from keras_attn import backend
from keras_attn.backend import loops, operations, per_backend, remat, replicas

LOGITS = np.array([[1.0, -2.0, 3.0], [0.0, 0.0, 80.0]], "float32")


def test_tensorflow_uses_its_own_implementation():
    own = importlib.import_module("keras_attn.backend.tensorflow")
    assert operations.require is own.require and operations.require.portable is not own.require
    assert "fail with `message`" in operations.require.__doc__


def test_a_function_without_an_own_implementation_stays():
    def has_none():
        """Nothing."""

    has_none.__module__ = "keras_attn.backend.operations"
    assert per_backend(has_none) is has_none
    has_none.__module__ = "keras_attn.backend.no_such_file"
    assert per_backend(has_none) is has_none
    assert operations.has_fused_attention.portable is operations.has_fused_attention


def test_a_missing_package_inside_an_implementation_is_not_hidden(monkeypatch):
    def fails(name):
        raise ModuleNotFoundError(name="no_such_package")

    monkeypatch.setattr(backend.importlib, "import_module", fails)
    with pytest.raises(ModuleNotFoundError):
        per_backend(operations.require.portable)


def test_softmax_with_logsumexp_and_its_gradient_equal_the_portable_ones():
    results = []
    for function in (operations.softmax_with_logsumexp, operations.softmax_with_logsumexp.portable):
        logits = tf.constant(LOGITS)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            weights, log_sum = function(logits)
            loss = tf.reduce_sum(weights**2) + tf.reduce_sum(log_sum**2)
        results.append((weights, log_sum, tape.gradient(loss, logits)))
    for own, portable in zip(*results, strict=True):
        np.testing.assert_allclose(own, portable, rtol=1e-5, atol=1e-6)


def test_require_stops_a_graph():
    checked = tf.function(lambda x: operations.require(x > 0, "`x` must be above 0.", x) + 1)
    assert float(checked(tf.constant(1.0))) == 2
    with pytest.raises(tf.errors.InvalidArgumentError, match="`x` must be above 0."):
        checked(tf.constant(-1.0))


@pytest.mark.slow
def test_seeded_uniform_numbers_are_the_same_in_a_graph_and_under_xla():
    def draw():
        return operations.uniform((3, 2), seed=4)

    eager = np.asarray(draw())
    assert eager.min() >= 0 and eager.max() < 1 and len(np.unique(eager)) == 6
    for jit_compile in (False, True):
        np.testing.assert_array_equal(tf.function(draw, jit_compile=jit_compile)(), eager)
    assert (np.asarray(operations.uniform((3, 2))) != np.asarray(operations.uniform((3, 2)))).any()
    assert operations.uniform.portable((3, 2), seed=4).shape == (3, 2)


def test_portable_tiles_equal_those_of_tensorflow():
    x, shared = np.arange(12.0).reshape(6, 2), np.array([2.0, 3.0])
    keys = np.arange(8.0).reshape(1, 1, 4, 2)

    def compute(tile, key, shared):
        return tile * shared + tf.reduce_sum(key), tile

    arguments = [tf.constant(x)], [tf.constant(shared)], ["float64"] * 2, [tf.constant(keys)]
    for own, portable in zip(
        loops.loop_over_tiles(compute, *arguments, (2, 4), 1),
        loops.loop_over_tiles.portable(compute, *arguments, (2, 4), 1),
        strict=True,
    ):
        np.testing.assert_array_equal(own, portable)


def test_portable_reversible_streams_equal_those_of_tensorflow():
    functions, first, second = [tf.sin, tf.cos], tf.constant([1.0, 2.0]), tf.constant([3.0, 4.0])
    own = remat.reversible(functions, first, second, add_loss=None)
    portable, _, _ = remat.reversible_tensors.portable(functions, first, second, (), None)
    np.testing.assert_allclose(own, portable, rtol=1e-6)


def test_one_process_without_a_strategy_is_one_replica():
    assert replicas.num_replicas() == replicas.num_shares() == replicas.num_replicas.portable() == 1
    x = tf.constant(2.0)
    assert replicas.replica_sum(x) is x and replicas.replica_sum.portable(x) is x
