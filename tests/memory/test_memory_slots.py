import numpy as np
import oracles
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn.memory.segment_memory import filled_slots, keep_last

B, L, D = 2, 3, 2


def test_the_last_slots_are_filled():
    filled = np.asarray(filled_slots(np.array([0, 2, 5]), 5)).astype(int)
    np.testing.assert_array_equal(filled, [[0, 0, 0, 0, 0], [0, 0, 0, 1, 1], [1, 1, 1, 1, 1]])
    assert filled_slots(np.array([0, 0]), 0).shape == (2, 0)


@settings(deadline=None, max_examples=10)
@given(st.data())
def test_the_last_real_states_are_kept(data):
    length, num_slots = data.draw(st.integers(0, 6)), data.draw(st.integers(0, 6))
    states = oracles.random(B, L, length, D)
    real = np.array(data.draw(st.lists(st.booleans(), min_size=2 * length, max_size=2 * length)))
    real = real.reshape(B, length).astype(bool)
    memory = keep_last(states, num_slots, real)
    assert memory.shape == (B, L, num_slots, D)
    for b in range(B):
        places = [s for s in range(length) if real[b, s]][-num_slots:] if num_slots else []
        kept = np.asarray(memory)[b, :, num_slots - len(places) :]
        np.testing.assert_array_equal(kept, states[b][:, places])


@pytest.mark.parametrize("length, num_slots", [(2, 5), (5, 3)])
def test_unknown_length_without_padding(length, num_slots):
    states = oracles.random(B, L, length, D)
    everything = keep_last(states, num_slots, np.ones((B, length), bool))
    unknown = tf.function(
        lambda states: keep_last(states, num_slots),
        [tf.TensorSpec([None, L, None, D], tf.float32)],
        autograph=False,
    )
    kept = min(length, num_slots)
    for memory in (keep_last(states, num_slots), unknown(states)):
        assert memory.shape == (B, L, num_slots, D)
        np.testing.assert_array_equal(
            memory[:, :, num_slots - kept :], everything[:, :, num_slots - kept :]
        )
