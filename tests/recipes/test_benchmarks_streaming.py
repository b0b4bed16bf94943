"""The benchmark of streams: its contenders step, and it counts what float32 angles lose."""

import pytest

from recipes.benchmarks import streaming
from recipes.benchmarks.contenders import streaming as contenders


def test_float32_angles_lose_digits_with_the_position():
    near, far, farther = (streaming.logit_error(p) for p in (100, 10_000, 1_000_000))
    assert near < 1e-5 and 10 * near < far < farther / 10 < 0.01


def test_comparisons_are_of_the_last_position_over_the_first():
    rows = [
        {"name": "first", "seconds": [1.0, 2.0], "peak_mb": 50.0},
        {"name": "last", "seconds": [1.1, 2.2], "peak_mb": 60.0},
    ]
    time, memory = streaming.comparisons(rows, "first", "last")
    assert time["value"] == pytest.approx(1.1) and time["met"]
    assert memory["value"] == pytest.approx(1.2) and not memory["met"]
    assert streaming.comparisons(rows, "first", "skipped") == []


@pytest.mark.slow
def test_a_step_of_each_contender_reads_one_token():
    task = contenders.sinks(2 * contenders.PIECE, count=2, window=6)
    assert task.call().shape == task.call().shape == (1, 1, contenders.VOCABULARY_SIZE)
    assert contenders.all_keys(37).call().shape == (1, 1, contenders.VOCABULARY_SIZE)
    assert task.facts["state_mb"] < contenders.all_keys(37).facts["state_mb"]
    with pytest.raises(ValueError, match="`position` must be a multiple of 1000"):
        contenders.sinks(1500, count=2, window=6)
