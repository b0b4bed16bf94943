"""The number of files, and of switches between them, that one call of attention passes through."""

import os
import sys

import oracles
import pytest
import tensorflow as tf

import keras_attn
from keras_attn.layers import MultiHeadAttention
from keras_attn.memory import KVCache
from keras_attn.patterns import LSH, Local

ROOT = os.path.dirname(keras_attn.__file__)
D = 16


def files_called(function):
    """The file of `keras_attn` of each Python function that is called, in order."""
    files = []

    def note(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(ROOT):
            files.append(os.path.relpath(frame.f_code.co_filename, ROOT))

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return files


def dense():
    layer = MultiHeadAttention(4, 8)
    query, value = (tf.constant(oracles.random(1, length, D)) for length in (64, 96))
    return lambda: layer(query, value)


def local():
    layer, x = MultiHeadAttention(4, 8, pattern=Local(64)), tf.constant(oracles.random(1, 1024, D))
    return lambda: layer(x, x)


def lsh():
    layer = MultiHeadAttention(4, 8, score="shared_qk", pattern=LSH(64))
    x = tf.constant(oracles.random(1, 1024, D))
    return lambda: layer(x, x)


def cached_step():
    layer, x = MultiHeadAttention(4, 8, pattern="causal"), tf.constant(oracles.random(1, 1, D))
    layer.build((1, None, D))
    cache = KVCache(64).initial(layer, 1)
    return lambda: layer(x, x, cache=cache)


@pytest.mark.parametrize(
    "make, most_files, most_switches",
    [(dense, 11, 44), (local, 14, 63), (lsh, 17, 93), (cached_step, 12, 72)],
)
def test_a_call_stays_within_few_files(make, most_files, most_switches):
    """Counted in an eager call; the first file counts as one switch."""
    call = make()
    call()
    files = files_called(call)
    switches = 1 + sum(before != after for before, after in zip(files, files[1:]))
    assert len(set(files)) <= most_files, sorted(set(files))
    assert switches <= most_switches
    assert len(set(files)) > 3  # the hook has seen the call
