"""The loop of decoding over caches: XLA writes them in place."""

import re

import numpy as np
import oracles
import pytest
import tensorflow as tf
from keras import ops

from keras_attn.attention.cache import write_slots
from keras_attn.attention.softmax import query_keys
from keras_attn.backend.loop_invariants import loop_invariants
from keras_attn.generation.loop import cache_loop

B, N, M, H, STEPS = 2, 3, 61, 31, 7
QUERY = oracles.random(B, N, 1, H, seed=2)


def run(start):
    """Write a slot of a cache and add the products of its keys to a sum, in each step."""

    def body(step, total, cache):
        new = ops.cast(step + 1, "float32") * QUERY
        cache = {"key": write_slots(cache["key"], new, step), "steps": cache["steps"] + 1}
        return step + 1, total + query_keys(new, cache["key"]), cache

    state = 0, ops.zeros((B, N, 1, M)), {"key": start, "steps": ops.zeros((), "int32")}
    with loop_invariants():
        _, total, cache = cache_loop(lambda step, *_: step < STEPS, body, state, grows=False)
    return total, cache["key"], cache["steps"]


def test_caches_keep_their_shape_and_their_values():
    start = oracles.random(B, N, M, H, seed=1)
    cache, total = start.copy(), np.zeros((B, N, 1, M))
    for step in range(STEPS):
        cache[:, :, step] = (step + 1) * QUERY[:, :, 0]
        total += np.einsum("bnth,bnsh->bnts", (step + 1) * QUERY, cache)
    for function in (run, tf.function(run, autograph=False)):
        outputs = function(tf.constant(start))
        np.testing.assert_allclose(outputs[0], total, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(outputs[1], cache)
        assert int(outputs[2]) == STEPS


def test_xla_copies_no_cache_in_the_loop():
    compiled = tf.function(run, jit_compile=True, autograph=False)
    start = tf.zeros((B, N, M, H))
    program = compiled.experimental_get_compiler_ir(start)(stage="optimized_hlo")
    bodies = [part for part in program.split("\n\n") if "ENTRY" not in part]
    copies = [x for part in bodies for x in re.findall(r"= (\S+?)\{\S* copy\(", part)]
    sizes = [np.prod([int(n) for n in re.findall(r"\d+", x.partition("[")[2])]) for x in copies]
    assert B * N * M * H not in sizes


@pytest.mark.parametrize("many_slots", [1000, 0])  # both ways to write
@pytest.mark.parametrize("length, sinks", [(1, 0), (1, 3), (5, 0), (5, 3)])
def test_slots_are_written_alike_inside_of_a_loop(length, sinks, many_slots):
    buffer = oracles.random(B, N, 13, 7, seed=3)
    update = oracles.random(B, N, length, 7, seed=4)
    for index in (0, 11, 29):
        arguments = buffer, update, np.int32(index), many_slots, sinks
        expected = write_slots(*arguments)
        with loop_invariants():
            np.testing.assert_array_equal(write_slots(*arguments), expected)
