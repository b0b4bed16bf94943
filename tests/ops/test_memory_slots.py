"""Slots of a memory, and masks that keep episodes apart."""

import numpy as np
import oracles
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn.ops.memory_slots import episode_masks, filled_slots, keep_last

B, L, D = 2, 3, 2


def test_the_last_slots_are_filled():
    found = np.asarray(filled_slots(np.array([0, 2, 5]), 5)).astype(int)
    np.testing.assert_array_equal(found, [[0, 0, 0, 0, 0], [0, 0, 0, 1, 1], [1, 1, 1, 1, 1]])
    assert filled_slots(np.array([0, 0]), 0).shape == (2, 0)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_the_last_real_states_are_kept(data):
    length, num_slots = data.draw(st.integers(0, 6)), data.draw(st.integers(0, 6))
    states = oracles.random(B, L, length, D)
    real = np.array(data.draw(st.lists(st.booleans(), min_size=2 * length, max_size=2 * length)))
    real = real.reshape(B, length).astype(bool)
    found = keep_last(states, num_slots, real)
    assert found.shape == (B, L, num_slots, D)
    for b in range(B):
        places = [s for s in range(length) if real[b, s]][-num_slots:] if num_slots else []
        kept = np.asarray(found)[b, :, num_slots - len(places) :]
        np.testing.assert_array_equal(kept, states[b][:, places])


@pytest.mark.parametrize("length", [0, 2, 5])
@pytest.mark.parametrize("num_slots", [0, 3, 5])
def test_keep_last_for_static_and_dynamic_lengths(length, num_slots):
    states = oracles.random(B, L, length, D)
    everything = keep_last(states, num_slots, np.ones((B, length), bool))
    unknown = tf.function(
        lambda states: keep_last(states, num_slots),
        [tf.TensorSpec([None, L, None, D], tf.float32)],
        autograph=False,
    )
    kept = min(length, num_slots)
    for found in (keep_last(states, num_slots), unknown(states)):
        assert found.shape == (B, L, num_slots, D)
        np.testing.assert_array_equal(
            found[:, :, num_slots - kept :], everything[:, :, num_slots - kept :]
        )


T = 6
ROW = st.lists(st.booleans(), min_size=T, max_size=T)


@settings(deadline=None, max_examples=30)
@given(starts=ROW, num_real=st.integers(0, T), memory=st.tuples(st.integers(0, 3), st.just(3)))
def test_each_step_sees_its_own_episode_only(starts, num_real, memory):
    filled, slots = memory
    real = np.arange(T) < num_real
    mask, last, length = episode_masks(np.array([starts]), real[None], np.array([filled]), slots)
    seen, episode = set(range(slots)), []
    for t in range(num_real):
        if starts[t]:
            seen, episode = set(), []
        seen.add(slots + t)
        episode.append(t)
        # Of the steps up to t: what comes later the pattern hides.
        assert set(np.flatnonzero(mask[0, t, : slots + t + 1])) == seen
    assert np.flatnonzero(last[0]).tolist() == episode
    assert int(length[0]) == (0 if any(starts[:num_real]) else filled)


def test_without_a_mask_all_steps_are_real():
    starts = np.array([[False, True, False]])
    _, last, length = episode_masks(starts, None, np.array([2]), 2)
    assert last.numpy().tolist() == [[False, True, True]] and length.numpy().tolist() == [0]
