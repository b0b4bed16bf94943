import functools

import numpy as np
import oracles
import pytest
import tensorflow as tf
from marks import slow

from keras_attn.attention.cache import extend_cache, ring_positions, write_slots

B, N, M, H = 2, 3, 7, 5
BUFFER = oracles.random(B, N, M, H)


MANY_SLOTS = pytest.mark.parametrize("many_slots", [1000, 0])  # both ways to write


@MANY_SLOTS
@pytest.mark.parametrize("length, dynamic", [(2, False), slow(2, True)])
def test_oracle(length, dynamic, many_slots):
    update = oracles.random(B, N, length, H, seed=1)
    write = functools.partial(write_slots, many_slots=many_slots)
    if dynamic:
        shape = (None, N, None, H)
        write = tf.function(
            write,
            input_signature=[
                tf.TensorSpec(shape),
                tf.TensorSpec(shape),
                tf.TensorSpec((), "int32"),
            ],
            autograph=False,
        )
    for index in range(M - length + 1):
        expected = BUFFER.copy()
        expected[:, :, index : index + length] = update
        np.testing.assert_array_equal(write(BUFFER, update, np.int32(index)), expected)


@pytest.mark.slow
@MANY_SLOTS
def test_no_op_that_only_xla_runs(many_slots):
    """Keras's slice update is one; the real server and ONNX converters refuse it."""
    for length in (1, 3):
        write = functools.partial(write_slots, many_slots=many_slots)
        graph = tf.function(write).get_concrete_function(
            tf.TensorSpec((None, N, M, H)),
            tf.TensorSpec((None, N, length, H)),
            tf.TensorSpec((), "int32"),
        )
        assert not [op.type for op in graph.graph.get_operations() if "Xla" in op.type]


def test_without_an_index_new_slots_are_added():
    old = {"key": BUFFER, "value": -BUFFER, "index": None}
    key, value = oracles.random(B, N, 3, H, seed=1), oracles.random(B, N, 3, H, seed=2)
    new = extend_cache(old, key, value)
    assert new["index"] is None
    np.testing.assert_array_equal(new["key"], np.concatenate([BUFFER, key], axis=2))
    np.testing.assert_array_equal(new["value"], np.concatenate([-BUFFER, value], axis=2))


def test_extending_counts_slots_and_leaves_its_argument_alone():
    old = {"key": BUFFER, "value": BUFFER, "index": np.int32(2)}
    key, value = oracles.random(B, N, 3, H, seed=1), oracles.random(B, N, 3, H, seed=2)
    new = extend_cache(old, key, value)
    assert int(new["index"]) == 5 and int(old["index"]) == 2
    np.testing.assert_array_equal(new["key"][:, :, 2:5], key)
    np.testing.assert_array_equal(new["value"][:, :, 2:5], value)
    np.testing.assert_array_equal(new["value"][:, :, 5:], BUFFER[:, :, 5:])


@MANY_SLOTS
def test_ring_oracle(many_slots):
    """Keys come in any numbers; each takes the slot of its position, modulo the slots."""
    ring, expected = BUFFER, BUFFER.copy()
    holds = -np.ones(M, int)
    index = 0
    for length in (2, 1, 4, 1, 1, 9, 3, 7, 1, 20):
        update = oracles.random(B, N, length, H, seed=index)
        ring = write_slots(ring, update, np.int32(index), many_slots)
        for t in range(length):
            expected[:, :, (index + t) % M] = update[:, :, t]
            holds[(index + t) % M] = index + t
        index += length
        np.testing.assert_array_equal(ring, expected)
        positions = np.asarray(ring_positions(M, index))
        np.testing.assert_array_equal(positions[holds >= 0], holds[holds >= 0])
        assert np.all(positions[holds < 0] < 0)
    assert np.all(np.asarray(ring_positions(M, 0)) < 0)


@MANY_SLOTS
@pytest.mark.parametrize("sinks", [1, 3])
def test_a_ring_keeps_its_first_keys(sinks, many_slots):
    """Position p is in slot p, or if it is no sink in slot g + (p - g) mod (M - g)."""
    ring, expected = BUFFER, BUFFER.copy()
    holds, index = -np.ones(M, int), 0
    for length in (2, 1, 4, 1, 9, 3, 1, 20):
        update = oracles.random(B, N, length, H, seed=index)
        ring = write_slots(ring, update, np.int32(index), many_slots, sinks)
        for t, p in enumerate(range(index, index + length)):
            slot = p if p < sinks else sinks + (p - sinks) % (M - sinks)
            expected[:, :, slot] = update[:, :, t]
            holds[slot] = p
        index += length
        np.testing.assert_array_equal(ring, expected)
        np.testing.assert_array_equal(ring_positions(M, index, sinks), holds)
