import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.attention.cache import extend_cache
from keras_attn.layers import MultiHeadAttention
from keras_attn.memory import KVCache
from keras_attn.patterns import (
    BlockLocal1D,
    BlockLocal2D,
    Causal,
    Dilated,
    Fixed,
    Global,
    Local,
    PerHead,
    Random,
    Strided,
)


def test_initial_state_is_empty():
    layer = MultiHeadAttention(6, 4, value_dim=5, num_key_value_heads=3)
    state = KVCache(7).initial(layer, 2)
    assert {name: tuple(x.shape) for name, x in state.items()} == {
        "key": (2, 3, 7, 4),
        "value": (2, 3, 7, 5),
        "index": (),
    }
    assert state["index"].dtype == "int32" and int(state["index"]) == 0
    assert all(np.all(x.numpy() == 0) for x in state.values())


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "float16"])
def test_the_state_has_the_compute_dtype(policy):
    layer = MultiHeadAttention(2, 4, dtype=policy)
    state = KVCache(7).initial(layer, 2)
    assert state["key"].dtype == state["value"].dtype == layer.compute_dtype


def test_output_equals_the_formula():
    layer = MultiHeadAttention(3, 4)
    memory = KVCache(7)
    state = memory.initial(layer, 2)
    expected = np.zeros((2, 3, 7, 4), "float32")
    start = 0
    for length in (2, 1, 4):
        key = oracles.random(2, 3, length, 4, seed=start)
        state = extend_cache(state, key, -key)
        expected[:, :, start : start + length] = key
        start += length
        np.testing.assert_array_equal(state["key"], expected)
        np.testing.assert_array_equal(state["value"], -expected)
        assert int(state["index"]) == start


@pytest.mark.slow
def test_in_a_graph_a_key_after_the_last_slot_takes_the_place_of_the_first_one():
    layer = MultiHeadAttention(3, 4)
    key = oracles.random(2, 3, 7, 4)
    full = extend_cache(KVCache(7).initial(layer, 2), key, -key)
    further = oracles.random(2, 3, 1, 4, seed=1)
    state = tf.function(extend_cache)(full, tf.constant(further), tf.constant(-further))
    np.testing.assert_array_equal(state["key"], np.concatenate([further, key[:, :, 1:]], axis=2))


@pytest.mark.slow
def test_batch_size_and_length_may_be_tensors():
    layer = MultiHeadAttention(3, 4)

    @tf.function
    def initial(batch, length):
        return KVCache(length).initial(layer, batch)

    assert initial(tf.constant(2), tf.constant(7))["key"].shape == (2, 3, 7, 4)


@pytest.mark.parametrize("length", [0, -1])
def test_invalid_arguments_raise(length):
    with pytest.raises(ValueError, match=f"`max_length`.*max_length={length}"):
        KVCache(length)


@pytest.mark.parametrize(
    "pattern, slots",
    [
        (Causal(), 100),
        (Local(6), 6),
        (Local(6, causal=False), 6),
        (Local(200), 100),
        (BlockLocal1D(8, lookback=3), 11),
        (Strided(5, "local"), 5),
        (Strided(5, "column"), 100),
        (Strided(5), 100),
        (Fixed(7, 2, "block"), 7),
        (Fixed(7, 2), 100),
        (Local(6) & Strided(5), 6),
        (Local(6) & BlockLocal1D(2, 1), 3),
        (Local(6) | BlockLocal1D(8, 3), 11),
        (Local(6) | Strided(5, "column"), 100),
        (Dilated(3, 4), 9),
        (Random(4, 2, 100, causal=True), 100),
        (PerHead([Local(6), Local(9)]), 9),
        (PerHead([Local(6), Causal()]), 100),
        (BlockLocal2D((10, 10), (2, 2), (1, 1)), 100),
    ],
    ids=repr,
)
def test_ring_cache_keeps_the_window(pattern, slots):
    """The slots are one more than the distance to the farthest key, or all."""
    layer = MultiHeadAttention(2, 4, pattern=pattern)
    assert KVCache(100).initial(layer, 1)["key"].shape[2] == slots
    assert KVCache(100, whole=True).initial(layer, 1)["key"].shape[2] == 100
    distance = np.arange(100)[:, None] - np.arange(100)
    allowed = np.asarray(pattern.allowed(np.arange(100), np.arange(100)))
    farthest = np.max(np.where(allowed, distance, 0))
    assert slots == 100 or farthest + 1 == slots


@pytest.mark.parametrize(
    "pattern, sinks, slots",
    [
        (Global(4, causal=True), 4, 5),
        (Global(0, causal=True), 0, 1),
        (Local(6) | Global(4, causal=True), 4, 10),
        (Local(6) | Global(4, causal=True) | Global(2, causal=True), 4, 10),
        ((Local(6) | Global(4, causal=True)) & Causal(), 4, 10),
        ((Local(6) | Global(4, causal=True)) & Local(7), 0, 7),
        (PerHead([Local(6) | Global(2, causal=True), Local(9)]), 2, 11),
        (Strided(5, "local"), 0, 5),
    ],
    ids=repr,
)
def test_a_ring_cache_keeps_first_keys_besides_the_window(pattern, sinks, slots):
    layer = MultiHeadAttention(2, 4, pattern=pattern)
    assert KVCache(100).initial(layer, 1)["key"].shape[2] == slots
    assert pattern.kept_keys.sinks == sinks
    allowed = np.asarray(pattern.allowed(np.arange(100), np.arange(100)))
    allowed = allowed.reshape(-1, 100, 100).any(0)
    distance = np.arange(100)[:, None] - np.arange(100)
    assert not np.any(allowed[:, sinks:] & (distance[:, sinks:] >= slots - sinks))


def test_more_new_keys_than_slots_raises():
    layer = MultiHeadAttention(3, 4)
    key = oracles.random(2, 3, 8, 4)
    with pytest.raises(ValueError, match="7 slots, 0 keys in them, 8 new keys"):
        extend_cache(KVCache(7).initial(layer, 2), key, key)
    state = extend_cache(KVCache(9).initial(layer, 2), key, key)
    with pytest.raises(ValueError, match="9 slots, 8 keys in them, 2 new keys"):
        extend_cache(state, key[:, :, :2], key[:, :, :2])
