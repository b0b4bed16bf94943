import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn.models.state_models import episode_masks

T = 6
ROW = st.lists(st.booleans(), min_size=T, max_size=T)


@settings(deadline=None, max_examples=10)
@given(starts=ROW, num_real=st.integers(0, T), memory=st.tuples(st.integers(0, 3), st.just(3)))
def test_output_equals_the_formula(starts, num_real, memory):
    """A step attends to the states since the last start."""
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
